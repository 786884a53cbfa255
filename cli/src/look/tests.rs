//! What a real API server cannot be made to say; a script stands for kubectl.

use super::*;

fn live(context: &str) -> Live {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/look/kubectl.sh");
    Live { kubectl: Program::kubectl(Some(context), None).at(script), quiet: false }
}

fn names(found: &ParsedDocuments) -> Vec<String> {
    found.documents.iter().map(|document| document.name()).collect()
}

#[test]
fn an_api_that_does_not_answer_hides_nothing_of_the_others() {
    assert_eq!(names(&live("partly").read(Purpose::Decide).unwrap()), ["a"]);
}

#[test]
fn limit_ranges_are_read_to_decide_and_not_to_be_shown() {
    assert_eq!(names(&live("limits").read(Purpose::Decide).unwrap()), ["a", "defaults"]);
    assert_eq!(names(&live("limits").read(Purpose::Show).unwrap()), ["a"]);
}

#[test]
fn what_is_hidden_and_matters_is_an_error_with_the_commands_that_allow_it() {
    let error = live("hidden").read(Purpose::Decide).unwrap_err().to_string();
    assert!(error.contains("may not list nodeclaims.karpenter.sh of this cluster"), "{error}");
    assert!(error.contains("--serviceaccount=ops:look") && error.contains("--resource=nodeclaims.karpenter.sh"), "{error}");
    assert_eq!(names(&live("hidden").read(Purpose::Show).unwrap()), ["a"], "to be shown, the others will do");
}

#[test]
fn a_refusal_that_names_no_kind_is_no_empty_list() {
    for purpose in [Purpose::Decide, Purpose::Show] {
        let error = live("unclear").read(purpose).unwrap_err().to_string();
        assert!(error.contains("something is hidden"), "{error}");
    }
}

#[test]
fn what_fails_halfway_is_no_empty_cluster() {
    for (context, says) in [("halfway", "EOF"), ("silent", "exit status: 1"), ("cut", "not JSON")] {
        let error = live(context).read(Purpose::Decide).unwrap_err().to_string();
        assert!(error.starts_with("the cluster cannot be read: ") && error.contains(says), "{context}: {error}");
        assert!(error.contains(&format!("--context {context}")), "{error}");
    }
}

#[test]
fn what_kubectl_says_without_a_remedy_gets_one() {
    for (context, remedy) in [
        ("unset", "aws eks update-kubeconfig --name CLUSTER"),
        ("unnamed", "kubectl config get-contexts"),
        ("stranger", "kubectl auth whoami"),
    ] {
        let error = live(context).read(Purpose::Decide).unwrap_err().to_string();
        assert!(error.starts_with("the cluster cannot be read: ") && error.contains(remedy), "{context}: {error}");
        assert!(error.contains(&format!("--context {context}")), "{error}");
    }
    let other = live("halfway").read(Purpose::Decide).unwrap_err().to_string();
    assert!(!other.contains("(kubectl") && !other.contains('`'), "nothing is advised without a reason: {other}");
}

#[test]
fn what_is_no_list_is_no_empty_cluster() {
    for (context, says) in [("empty", "the answer is empty"), ("number", "no list of objects"), ("itemless", "no list of objects")] {
        for purpose in [Purpose::Decide, Purpose::Show] {
            let error = live(context).read(purpose).unwrap_err().to_string();
            assert!(error.starts_with("the cluster cannot be read: the answer is ") && error.contains(says), "{context}: {error}");
        }
    }
    assert_eq!(names(&live("null").read(Purpose::Decide).unwrap()), ["a"], "null is an empty list");
}

#[test]
fn a_question_for_a_user_is_no_cluster_without_kinds() {
    for purpose in [Purpose::Decide, Purpose::Show, Purpose::Check] {
        let error = live("asking").read(purpose).unwrap_err().to_string();
        assert!(error.starts_with("the cluster cannot be read: ") && error.contains("EOF"), "{error}");
    }
}

#[test]
fn the_region_is_in_the_address_of_the_server() {
    for (server, region) in [
        ("https://0123ABCD.gr7.eu-west-1.eks.amazonaws.com", Some("eu-west-1")),
        ("https://0123ABCD.sk1.cn-north-1.eks.amazonaws.com.cn", Some("cn-north-1")),
        ("https://0123ABCD.gr7.us-gov-west-1.eks.amazonaws.com:443/", Some("us-gov-west-1")),
        ("https://0123ABCD.eks-cluster.us-west-2.api.aws", Some("us-west-2")),
        ("https://127.0.0.1:6443", None),
        ("https://eks.amazonaws.com", None),
        ("", None),
    ] {
        assert_eq!(region_of_server(server), region, "{server}");
    }
}
