//! Checks that words replaced by those of Kubernetes, Karpenter and EC2 do not return in names or comments.

/// Retired words, each with its replacement. A word is added once no Rust file uses it.
const RETIRED: &[(&str, &str)] = &[
    ("AbsenceBelieved", "AbsenceUnverified"),
    ("Anew", "Replanned"),
    ("AsBefore", "Unchanged"),
    ("Asking", "DaemonFit"),
    ("Assortment", "InstanceTypes"),
    ("BudgetsUnasked", "EvictionBudgetsIgnored"),
    ("ClaimsReadLate", "ClaimListingStale"),
    ("DeletionAsked", "DeletionRequested"),
    ("DoorbellToRing", "DoorbellToSend"),
    ("Doubtful", "RejectedByChecker"),
    ("EndUnconfirmed", "TerminationUnconfirmed"),
    ("Explorer", "Ec2Discovery"),
    ("FinalizersGoEarly", "FinalizersRemovedEarly"),
    ("ForGood", "Permanent"),
    ("ForNow", "Transient"),
    ("Freedom", "PackingOptions"),
    ("Gather", "GroupBuilder"),
    ("Going", "Deleting"),
    ("Ground", "ProblemBuilder"),
    ("HELD_AGAIN", "RETRY_WHEN_HELD"),
    ("LeftToTick", "SkipUntilTick"),
    ("LookKind", "PostKind"),
    ("Makers", "WorkloadManifests"),
    ("OneLookBelieved", "SingleReadTrusted"),
    ("Outlook", "QuickCheck"),
    ("PoolSays", "PoolRejection"),
    ("PriceNotKept", "PriceIgnored"),
    ("Purse", "PriceCache"),
    ("ReplacementNotAhead", "ReplacementPlannedLate"),
    ("Shelf", "CatalogSet"),
    ("Shelved", "CachedCatalog"),
    ("Shop", "TypePriceIndex"),
    ("Sights", "Sightings"),
    ("Sought", "ObjectKind"),
    ("Standing", "TopologyMembership"),
    ("StandingClock", "FixedClock"),
    ("Teller", "Narrator"),
    ("ToRing", "DoorbellToSend"),
    ("TokenForgotten", "ClientTokenIgnored"),
    ("TurnPassed", "TransientDuringPass"),
    ("WishCost", "PreferenceCost"),
    ("Worded", "OldBooleans"),
    ("Worth", "PlanValue"),
    ("Yard", "BinPacker"),
    ("about_to_go", "about_to_execute"),
    ("arrive_late", "apply_late_claims"),
    ("avoids_resting", "avoids_spared"),
    ("befall", "inject faults"),
    ("befell", "inject faults"),
    ("begin_end", "begin_termination"),
    ("carry_out", "execute"),
    ("check_bell", "check_doorbell"),
    ("check_ends_at_second_sight", "check_ends_at_second_sighting"),
    ("check_rung", "check_doorbells"),
    ("check_taken_back", "check_rolled_back"),
    ("claims_take_expiry", "set_expiry_of_claims"),
    ("class_came", "class_is_new"),
    ("clings", "is_pinned"),
    ("compares_well", "has_one_number"),
    ("deletion_asked", "request_deletion"),
    ("disturb", "change_environment"),
    ("door", "endpoint"),
    ("doubts", "warnings"),
    ("end_turn", "release_lease"),
    ("forget_nulls", "remove_nulls"),
    ("forgotten_at", "deletable_at"),
    ("furnish", "add_resources"),
    ("give_all", "assign_all"),
    ("hand_out", "assign_instances"),
    ("handed_on", "reexports"),
    ("homeless", "unplaced"),
    ("is_hollow", "is_blank"),
    ("is_nobodys", "is_released"),
    ("is_passing", "is_transient"),
    ("is_shown_by", "is_mirrored_by"),
    ("is_social", "depends_on_other_pods"),
    ("is_to_leave_its_block", "must_leave_block"),
    ("judge_arn", "check_arn"),
    ("kept_types", "types_to_keep"),
    ("learn_partition", "set_partition"),
    ("let_all_go", "remove_finalizers"),
    ("let_others", "yield_to_others"),
    ("lets_go", "is_released"),
    ("machine_to_end", "machine_to_terminate"),
    ("mark_going", "mark_deleting"),
    ("means_truth", "replace_old_boolean"),
    ("misshapen", "has_wrong_shape"),
    ("miswritten", "wrong_writers"),
    ("must_go_first", "evicted_before"),
    ("nobody_names_the_machines", "instances_missing_from_responses"),
    ("not_my_turn", "lease_held_report"),
    ("nothing_blocks", "assert_deletable"),
    ("odd_claims", "unreadable_claims"),
    ("one_of_two_is_there", "one_of_two_launched"),
    ("pretend_pods", "virtual pods"),
    ("price_of_wishes", "preference_cost"),
    ("refuse_restlessness", "check_move_limit"),
    ("region_store_unheard", "region_store_with_lost_responses"),
    ("reservations_go_on", "step_reservations"),
    ("seems_lost", "is_missing"),
    ("shunned", "negated_custom_keys"),
    ("shunning", "opted_out"),
    ("speaks_for_itself", "affects_only_itself"),
    ("spelt_otherwise", "misspelt"),
    ("store_unseen", "store_without_call"),
    ("stray_node", "orphan_node"),
    ("swallow", "read_without_panic"),
    ("take_turn", "acquire_lease"),
    ("tell_deployments", "log_deployments"),
    ("tell_partition", "set_partition"),
    ("tells_all_errors", "reports_all_errors"),
    ("thrift", "cheapest fit"),
    ("troubles", "unready_conditions"),
    ("types_say", "explain_types"),
    ("under_new_name", "replace_token"),
    ("unhealthy_goes", "unhealthy_allowed"),
    ("unless_moved", "unless_conflict"),
    ("unshow_young", "hide_new_machines"),
    ("was_given_up", "was_abandoned"),
    ("watch_look", "observe_cluster_listing"),
    ("without_its_table", "check_table_loss"),
    ("work_off", "process"),
    ("yard", "refill"),
];

/// The file that lists the words.
const SELF: &str = "xtask/src/vocabulary.rs";

/// One sentence for each retired word in a Rust file.
pub(crate) fn in_text(name: &str, text: &str) -> Vec<String> {
    if !name.ends_with(".rs") || name == SELF {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    lines.flat_map(|(index, line)| retired(line).map(move |(old, new)| format!("{name}:{}: {old}: write {new}", index + 1))).collect()
}

fn retired(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter_map(|word| RETIRED.iter().copied().find(|(old, _)| *old == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_word_in_code_or_a_comment_is_reported() {
        let text = "fn fine() {}\n/// What may befall a node.\nstruct Makers;\n";
        assert_eq!(in_text("a.rs", text), ["a.rs:2: befall: write inject faults", "a.rs:3: Makers: write WorkloadManifests"]);
    }

    #[test]
    fn parts_of_words_and_other_files_do_not_count() {
        assert_eq!(in_text("a.rs", "let match_makers = Makers2::new(stray_nodes);"), Vec::<String>::new());
        assert_eq!(in_text("CHANGELOG.md", "`Makers`"), Vec::<String>::new());
        assert_eq!(in_text(SELF, "Makers"), Vec::<String>::new());
    }

    #[test]
    fn words_are_sorted_and_have_a_replacement() {
        assert!(RETIRED.is_sorted());
        assert!(RETIRED.iter().all(|(old, new)| !new.is_empty() && old != new));
    }
}
