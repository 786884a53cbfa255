//! An account as `aws` and `sam` see it: one endpoint for every service. EC2, EKS and SSM are those of the simulated AWS, everything else
//! is the emulator's. What users write and neither keeps is here: access entries, tags of subnets and security groups, parameters.

mod entries;
mod tags;

pub(crate) use entries::AccessEntries;

use crate::emulator::ACCOUNT;
use crate::http_server;
use anyhow::{Context, Result};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use whittle_fake_aws::server::Shared;
use whittle_units::ClusterName;

/// The access key of the person who installs. The functions have another one: the emulator gives them the account's number.
pub(crate) const USER_KEY: &str = "AKIARIGUSER";

/// The role with which EC2 starts spot instances.
const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// What is behind the endpoint.
pub(crate) struct Account {
    /// Address of the emulator, as in `http://127.0.0.1:4566`.
    pub emulator: String,
    /// Address of the simulated AWS.
    pub simulated: String,
    pub region: Shared,
    pub entries: AccessEntries,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A request of a service, read to its end.
struct Call {
    parts: http::request::Parts,
    body: Bytes,
}

/// An answer in JSON, with the fault's code where it is one.
struct Answer {
    status: StatusCode,
    fault: Option<&'static str>,
    body: Value,
}

impl Answer {
    fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, fault: None, body }
    }

    fn fault(status: StatusCode, code: &'static str, message: &str) -> Self {
        Self { status, fault: Some(code), body: json!({"__type": code, "message": message}) }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body.to_string()));
        *response.status_mut() = self.status;
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        if let Some(code) = self.fault {
            response.headers_mut().insert("x-amzn-errortype", HeaderValue::from_static(code));
        }
        response
    }
}

impl Account {
    pub(crate) fn new(emulator: String, simulated: String, region: Shared, entries: AccessEntries) -> Self {
        Self { emulator, simulated, region, entries, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Serves the endpoint.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let account = Arc::new(self);
        let answer = move |request| {
            let account = Arc::clone(&account);
            async move { account.answer(request).await.unwrap_or_else(|error| unavailable(&error)) }
        };
        http_server::serve(listener, None, answer).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let (parts, body) = request.into_parts();
        let call = Call { parts, body: body.collect().await.context("the body is incomplete")?.to_bytes() };
        match service_of(&call.parts.headers).as_str() {
            "eks" => self.eks(call).await,
            "ec2" => match tags::change(&self.region, &call.body) {
                Some(answer) => Ok(answer),
                None => self.pass_on(&self.simulated, call).await,
            },
            "ssm" => match self.write_parameter(&call) {
                Some(answer) => Ok(answer.response()),
                None => self.pass_on(&self.simulated, call).await,
            },
            "iam" => self.iam(call).await,
            _ => self.pass_on(&self.emulator, call).await,
        }
    }

    /// EKS: what is here of it, and the cluster with what its users ask of it besides.
    async fn eks(&self, call: Call) -> Result<Response<Full<Bytes>>> {
        let path = call.parts.uri.path().to_owned();
        let parts: Vec<&str> = path.trim_matches('/').splitn(4, '/').collect();
        match parts[..] {
            ["clusters"] => {
                let names = self.region.look(|lone| lone.clusters.keys().map(ToString::to_string).collect::<Vec<_>>());
                Ok(Answer::ok(json!({"clusters": names})).response())
            }
            ["clusters", cluster, "access-entries"] => Ok(self.entries.call(&call.parts.method, cluster, None, &call.body).response()),
            ["clusters", cluster, "access-entries", arn] => {
                let arn = form_urlencoded::parse(arn.as_bytes()).map(|(arn, _)| arn.into_owned()).next();
                Ok(self.entries.call(&call.parts.method, cluster, arn.as_deref(), &call.body).response())
            }
            ["clusters", _, "addons", _] => {
                Ok(Answer::fault(StatusCode::NOT_FOUND, "ResourceNotFoundException", "No addon of this name was found.").response())
            }
            ["clusters", cluster] => {
                let cluster = ClusterName::new(cluster);
                let answer = self.pass_on(&self.simulated, call).await?;
                self.with_network(&cluster, answer).await
            }
            _ => self.pass_on(&self.simulated, call).await,
        }
    }

    /// The description of a cluster, with authentication mode, subnets and security group.
    async fn with_network(&self, cluster: &ClusterName, answer: Response<Full<Bytes>>) -> Result<Response<Full<Bytes>>> {
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let body = answer.into_body().collect().await?.to_bytes();
        let mut described: Value = serde_json::from_slice(&body).context("the description of the cluster")?;
        let network = self.region.look(|lone| {
            let network = &lone.region.network;
            let subnets: Vec<&str> = network.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
            json!({"subnetIds": subnets, "clusterSecurityGroupId": network.groups.first().map(|group| &group.id)})
        });
        let about = &mut described["cluster"];
        about["accessConfig"] = json!({"authenticationMode": "API"});
        about["identity"] = json!({"oidc": {"issuer": format!("https://oidc.example.com/id/{cluster}")}});
        for (field, value) in network.as_object().into_iter().flatten() {
            about["resourcesVpcConfig"][field] = value.clone();
        }
        Ok(Answer::ok(described).response())
    }

    /// IAM is the emulator's. The simulated AWS knows which roles are there: it gives an instance profile no other.
    async fn iam(&self, call: Call) -> Result<Response<Full<Bytes>>> {
        let fields: Vec<(String, String)> = form_urlencoded::parse(&call.body).into_owned().collect();
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
        if field("AWSServiceName") == "spot.amazonaws.com" {
            return self.make_spot_role(call).await;
        }
        let answer = self.pass_on(&self.emulator, call).await?;
        if answer.status().is_success() {
            let role = field("RoleName").to_owned();
            self.region.look(|lone| match field("Action") {
                "CreateRole" => drop(lone.region.network.roles.insert(role)),
                "DeleteRole" => drop(lone.region.network.roles.remove(&role)),
                _ => {}
            });
        }
        Ok(answer)
    }

    /// The service-linked role of EC2 Spot, which the emulator would give another name.
    async fn make_spot_role(&self, mut call: Call) -> Result<Response<Full<Bytes>>> {
        let asked = [("Action", "CreateRole"), ("Version", "2010-05-08"), ("RoleName", SPOT_ROLE), ("AssumeRolePolicyDocument", "{}")];
        call.body = form_urlencoded::Serializer::new(String::new()).extend_pairs(asked).finish().into();
        call.parts.headers.remove(ACCEPT_ENCODING);
        let (mut head, body) = self.pass_on(&self.emulator, call).await?.into_parts();
        let text = String::from_utf8_lossy(&body.collect().await?.to_bytes()).replace("CreateRole", "CreateServiceLinkedRole");
        head.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(head, Full::from(text)))
    }

    /// What changes a parameter.
    fn write_parameter(&self, call: &Call) -> Option<Answer> {
        let target = call.parts.headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let asked: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
        let name = text("Name");
        self.region.look(|lone| {
            let parameters = &mut lone.region.network.parameters;
            match target.rsplit('.').next()? {
                "PutParameter" if parameters.contains_key(&name) && asked["Overwrite"] != json!(true) => {
                    Some(Answer::fault(StatusCode::BAD_REQUEST, "ParameterAlreadyExists", "The parameter already exists."))
                }
                "PutParameter" => {
                    parameters.insert(name, text("Value"));
                    Some(Answer::ok(json!({"Version": 1, "Tier": "Standard"})))
                }
                "DeleteParameter" if parameters.remove(&name).is_some() => Some(Answer::ok(json!({}))),
                "DeleteParameter" => Some(Answer::fault(StatusCode::BAD_REQUEST, "ParameterNotFound", "There is no such parameter.")),
                _ => None,
            }
        })
    }

    /// Another server's answer. The emulator takes the account from the access key.
    async fn pass_on(&self, to: &str, call: Call) -> Result<Response<Full<Bytes>>> {
        let Call { mut parts, body } = call;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        parts.uri = format!("{to}{path}").parse()?;
        parts.headers.remove(HOST);
        parts.headers.remove(CONTENT_LENGTH);
        if let Some(signed) = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) {
            let account = signed.replacen(&format!("Credential={USER_KEY}/"), &format!("Credential={ACCOUNT}/"), 1);
            parts.headers.insert(AUTHORIZATION, HeaderValue::from_str(&account)?);
        }
        let answer = self.client.request(Request::from_parts(parts, Full::from(body))).await;
        let (mut head, body) = answer.with_context(|| format!("{to} does not answer"))?.into_parts();
        let body = body.collect().await?.to_bytes();
        head.headers.remove(http::header::TRANSFER_ENCODING);
        Ok(Response::from_parts(head, Full::from(body)))
    }
}

fn unavailable(error: &anyhow::Error) -> Response<Full<Bytes>> {
    eprintln!("a call of the account has no answer: {error:#}");
    Answer::fault(StatusCode::BAD_GATEWAY, "ServiceUnavailable", &format!("{error:#}")).response()
}

/// The service that a request is signed for; empty if it is not signed.
fn service_of(headers: &HeaderMap) -> String {
    let signed = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let scope = signed.split([' ', ',']).find_map(|part| part.strip_prefix("Credential=")).unwrap_or_default();
    scope.split('/').nth(3).unwrap_or_default().to_owned()
}
