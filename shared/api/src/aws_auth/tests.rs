use super::*;
use crate::manifest::{self, Object};

fn diagnosis(text: &str) -> Diagnosis {
    let Object::ConfigMap(map) = manifest::read("f", text).unwrap().remove(0).value else { panic!("a ConfigMap") };
    diagnose(&map)
}

#[test]
fn s2_5_nodes_of_the_mapped_role_may_join() {
    let diagnosis = diagnosis(include_str!("../../../../tests/seeds/002-aws-auth.yaml"));
    assert!(diagnosis.faults.is_empty(), "{:?}", diagnosis.faults);
    assert_eq!(diagnosis.mappings.len(), 2);
    assert!(diagnosis.may_join("KarpenterNodeRole-${CLUSTER_NAME}"));
    assert!(!diagnosis.may_join("KarpenterNodeRole-other"));
}

#[test]
fn s2_6_a_malformed_entry_and_an_instance_profile_are_both_diagnosed() {
    let diagnosis = diagnosis(include_str!("../../../../tests/seeds/002-aws-auth-as-printed.yaml"));
    assert_eq!(diagnosis.faults.len(), 2, "{:?}", diagnosis.faults);
    assert!(diagnosis.faults[0].starts_with("mapRoles entry 2 is not valid YAML"), "{:?}", diagnosis.faults);
    assert!(diagnosis.faults[0].contains("never join"), "{:?}", diagnosis.faults);
    assert!(diagnosis.faults[1].contains("instance profile, a role is needed"), "{:?}", diagnosis.faults);
    assert!(!diagnosis.may_join("eksctl-prd-eks-nodegroup-worknode-NodeInstanceRole-1WM8CGG0R5KS3"), "a broken list is not read");
}

#[test]
fn for_an_empty_map_the_missing_entry_is_suggested() {
    assert!(diagnose(&ConfigMap::default()).faults[0].contains("mapRoles"));
}
