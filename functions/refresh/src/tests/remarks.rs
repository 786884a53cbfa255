//! What classes say and none of their nodes does.

use super::{class, fenced, record, run_under, with_role};
use crate::classes::new_remarks;
use whittle_api::conditions;
use whittle_api::karpenter::{AmiSelectorTerm, Ec2NodeClass};

#[test]
fn a_setting_without_effect_is_logged_once_and_stays_in_the_condition() {
    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-c"));
    simulation.change::<Ec2NodeClass>("default", |class| {
        class.spec.ami_selector_terms = vec![AmiSelectorTerm { alias: Some("bottlerocket@latest".into()), ..AmiSelectorTerm::default() }];
        class.spec.user_data = Some("[settings.kubernetes]\nmax-pod = 4\n".into());
    });
    let before = record(&simulation);
    assert_eq!(new_remarks(&class(&simulation).unwrap(), before.as_ref()).len(), 1);
    for _ in 0..2 {
        let (shown, record) = run_under(&simulation, &settings);
        assert!(record.is_ready(), "{:?}", record.problems);
        let condition = conditions::find(&shown.status.conditions, conditions::VALIDATION_SUCCEEDED).unwrap();
        assert!(condition.message.contains("settings.kubernetes.max-pod"), "{}", condition.message);
        assert_eq!(new_remarks(&shown, Some(&record)), [""; 0]);
    }
}
