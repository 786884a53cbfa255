//! Tags of subnets and security groups, which the simulated EC2 only shows.

use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use std::collections::BTreeMap;
use whittle_fake_aws::server::Shared;

/// The answer to a call that gives or takes tags of subnets and security groups alone.
pub(super) fn change(region: &Shared, body: &[u8]) -> Option<Response<Full<Bytes>>> {
    let fields: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
    let action = fields.get("Action").filter(|action| ["CreateTags", "DeleteTags"].contains(&action.as_str()))?;
    let with = |prefix: &str, suffix: &str| -> Vec<&String> {
        fields.iter().filter(|(name, _)| name.starts_with(prefix) && name.ends_with(suffix)).map(|(_, value)| value).collect()
    };
    let ids = with("ResourceId.", "");
    if ids.is_empty() || !ids.iter().all(|id| id.starts_with("subnet-") || id.starts_with("sg-")) {
        return None;
    }
    let of = |key: &str| Some((fields.get(key)?.clone(), fields.get(&key.replace(".Key", ".Value")).cloned().unwrap_or_default()));
    let keys = fields.keys().filter(|name| name.starts_with("Tag.") && name.ends_with(".Key"));
    let tags: Vec<(String, String)> = keys.filter_map(|key| of(key)).collect();
    region.look(|lone| {
        let network = &mut lone.region.network;
        let subnets = network.subnets.iter_mut().map(|subnet| (&subnet.id, &mut subnet.tags));
        let groups = network.groups.iter_mut().map(|group| (&group.id, &mut group.tags));
        for (_, own) in subnets.chain(groups).filter(|(id, _)| ids.contains(id)) {
            for (key, value) in &tags {
                if action == "CreateTags" {
                    own.insert(key.clone(), value.clone())
                } else {
                    own.remove(key)
                };
            }
        }
    });
    let xml = format!(
        r#"<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>rig</requestId><return>true</return></{action}Response>"#
    );
    let mut response = Response::new(Full::from(xml));
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/xml;charset=UTF-8"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_fake_aws::Lone;
    use whittle_units::{ClusterName, Timestamp};

    #[test]
    fn subnets_and_groups_get_and_lose_tags_and_machines_are_left_to_ec2() {
        let region = Shared::new(Lone::new("us-west-2", &ClusterName::new("shop"), Timestamp::now()));
        let id = region.look(|lone| lone.region.network.subnets[0].id.clone());
        let tag = || region.look(|lone| lone.region.network.subnets[0].tags.get("a").cloned());
        let call = |action: &str, id: &str| {
            change(&region, format!("Action={action}&Version=2016-11-15&ResourceId.1={id}&Tag.1.Key=a&Tag.1.Value=b").as_bytes())
        };
        assert!(call("CreateTags", &id).is_some());
        assert_eq!(tag().as_deref(), Some("b"));
        assert!(call("DeleteTags", &id).is_some());
        assert_eq!(tag(), None);
        assert!(call("CreateTags", "i-0123").is_none());
        assert!(call("DescribeSubnets", &id).is_none());
    }
}
