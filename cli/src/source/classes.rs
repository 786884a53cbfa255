//! NodePools that refer to an EC2NodeClass which is not there, and what of those that are there has no effect.

use super::remarks::Remark;
use crate::similar::nearest_name;
use std::fmt;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_ec2::node_class;

/// What of node classes none of their nodes does.
pub(crate) fn without_effect(classes: &[Ec2NodeClass]) -> impl Iterator<Item = Remark> {
    let of = |class: &Ec2NodeClass| {
        let told = |remark: String| Remark::warning(format!("EC2NodeClass {:?}, {remark}", class.metadata.name));
        without_spec(class).map(str::to_owned).into_iter().chain(node_class::remarks(class)).map(told).collect::<Vec<_>>()
    };
    classes.iter().flat_map(of)
}

/// What is missing of a class without a spec, which an API server accepts: one with a spec has selectors, or is refused.
pub(crate) fn without_spec(class: &Ec2NodeClass) -> Option<&'static str> {
    let is_without = class.spec.subnet_selector_terms.is_empty() && class.spec.security_group_selector_terms.is_empty();
    is_without.then_some(
        "spec: missing: it selects no subnet, no security group and no image, so that no node is launched: give subnetSelectorTerms, \
         securityGroupSelectorTerms, amiSelectorTerms, and role or instanceProfile",
    )
}

/// A NodePool or Provisioner without its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dangling {
    old: bool,
    pool: String,
    class: String,
    /// A class that is there and was probably meant.
    meant: Option<String>,
}

impl Dangling {
    /// What there is to say of it beside these errors: a class that one of them is about is there, and is no use as it is.
    pub(crate) fn beside<'a>(&self, mut errors: impl Iterator<Item = &'a String>) -> String {
        let (reference, class) = self.names();
        let of_class = [format!("{class}, "), format!("{class} is given twice")];
        if errors.any(|error| of_class.iter().any(|begin| error.contains(begin))) {
            format!("{reference}: {class} is refused, and without it no node is launched: correct it")
        } else {
            self.to_string()
        }
    }

    /// The field that refers, and the class that it means.
    fn names(&self) -> (String, String) {
        let Self { old, pool, class, .. } = self;
        let (kind, field, class_kind) = if *old {
            ("Provisioner", "spec.providerRef", "AWSNodeTemplate")
        } else {
            ("NodePool", "spec.template.spec.nodeClassRef", "EC2NodeClass")
        };
        (format!("{kind} {pool:?}, {field}"), format!("{class_kind} {class:?}"))
    }
}

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reference, class) = self.names();
        write!(f, "{reference}: {class} is missing, and without it no node is launched: add it, or correct the name")?;
        self.meant.as_ref().map_or(Ok(()), |meant| write!(f, " (did you mean {meant:?}?)"))
    }
}

/// The pools whose class is missing. Classes of other providers are none of our business.
pub(crate) fn dangling<'a>(pools: impl IntoIterator<Item = &'a NodePool>, classes: &[Ec2NodeClass]) -> Vec<Dangling> {
    let is_without = |pool: &&NodePool| {
        let reference = &pool.spec.template.spec.node_class_ref;
        reference.kind == Ec2NodeClass::KIND && pool.is_managed() && pool.class_in(classes).is_none()
    };
    let named = |pool: &NodePool| {
        let (old, class) = (pool.is_converted_provisioner(), pool.spec.template.spec.node_class_ref.name.clone());
        let of_kind = classes.iter().filter(|class| class.is_converted_template() == old);
        let meant = nearest_name(&class, of_kind.map(|class| class.metadata.name.clone()));
        Dangling { old, pool: NodePool::given_name(&pool.metadata.name).to_owned(), class, meant }
    };
    pools.into_iter().filter(is_without).map(named).collect()
}
