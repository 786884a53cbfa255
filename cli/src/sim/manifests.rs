//! Manifests for the measuring commands: one NodePool with its class, and Deployments.

/// A NodePool `default` with a capacity type and `requirements` (flow style, one per line), and its class.
/// `disruption` is the pool's, in flow style.
pub(super) fn pool(capacity_type: &str, requirements: &[&str], disruption: &str) -> String {
    let requirements: String = requirements.iter().map(|one| format!("        - {one}\n")).collect();
    format!(
        "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: default}}
spec:
  template:
    spec:
      requirements:
        - {{key: karpenter.sh/capacity-type, operator: In, values: [{capacity_type}]}}
{requirements}      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      expireAfter: Never
  disruption: {disruption}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: default}}
spec:
  role: KarpenterNodeRole-demo
  amiSelectorTerms: [{{alias: al2023@latest}}]
  subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}]
  securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}]
"
    )
}

/// A Deployment `app-…` whose pods request `cpu` millicores and `memory` mebibytes.
pub(super) fn deployment(app: u32, replicas: u32, cpu: u32, memory: u32) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: app-{app}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: app-{app}}}}}
  template:
    metadata: {{labels: {{app: app-{app}}}}}
    spec:
      containers:
        - {{name: app, image: app, resources: {{requests: {{cpu: {cpu}m, memory: {memory}Mi}}}}}}
"
    )
}
