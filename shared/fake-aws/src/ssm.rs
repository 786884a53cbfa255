//! SSM's parameter store: the public parameters of the images in the region.

use crate::errors::Fault;
use crate::place::Place;
use serde_json::{Value, json};

pub(crate) fn call(place: &mut dyn Place, action: &str, mut body: Value) -> Result<Value, Fault> {
    if action != "GetParameter" {
        return Err(Fault::new("UnknownOperationException", format!("{action} is not known here")));
    }
    let mut take = |name: &str| body.as_object_mut().and_then(|fields| fields.remove(name));
    let (name, _) = (take("Name"), take("WithDecryption"));
    if let Some((unknown, _)) = body.as_object().and_then(|fields| fields.iter().next()) {
        return Err(Fault::new("ValidationException", format!("{unknown} is not known")));
    }
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() || name.len() > 2048 {
        return Err(Fault::new("ValidationException", "Parameter name: can't be empty or longer than 2048"));
    }
    let region = place.region();
    let Some(value) = region.network.parameter(name) else { return Err(Fault::new("ParameterNotFound", "")) };
    let owner = if name.starts_with("/aws/") { "" } else { crate::ec2::ACCOUNT };
    let arn = format!("arn:{}:ssm:{}:{owner}:parameter{name}", region.partition(), region.name());
    Ok(json!({"Parameter": {"Name": name, "Type": "String", "Value": value, "Version": 1, "ARN": arn, "DataType": "text"}}))
}
