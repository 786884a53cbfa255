use super::*;
use crate::schema::Document;
use crate::schema::tests::assert_valid;
use serde_json::{Value, json};

fn args() -> SavingsArgs {
    let stack = StackArgs::default();
    SavingsArgs { files: Vec::new(), stack, region: None, cluster: None, since: None, until: None, output: Output::Text, report: None }
}

fn entry(id: &str, before: u64, after: u64) -> Value {
    json!({
        "id": id, "at": "2026-01-05T10:00:00Z", "reason": "Underutilized", "action": "replace", "nodes": ["n1"],
        "nodePools": ["default"], "beforeNanos": before, "afterNanos": after, "podsMoved": 4,
    })
}

fn record(id: &str, before: u64, after: u64) -> Value {
    let detail = json!({ "ledger": entry(id, before, after) });
    json!({"at": "2026-01-05T10:00:00Z", "kind": "disrupted", "subject": "ledger", "message": "…", "detail": detail})
}

fn summary(input: &str, output: Output) -> Summary {
    let args = SavingsArgs { output, ..args() };
    summarize(&args, "2026-01-05T12:00:00Z".parse().unwrap(), &mut input.as_bytes())
}

#[track_caller]
fn check(input: &str, commands: u64, saved: f64) {
    let summary = summary(input, Output::Json);
    assert_eq!((summary.status, &summary.faults), (0, &Vec::new()), "{input}");
    let value: Value = serde_json::from_str(&summary.text).unwrap();
    assert_valid(Document::Savings, &value);
    assert_eq!((value["commands"].as_u64(), value["dollarsPerHour"]["saved"].as_f64()), (Some(commands), Some(saved)), "{input}");
}

#[test]
fn entries_are_found_in_all_formats() {
    let (a, b) = (record("a", 3_000_000_000, 1_000_000_000), record("b", 500_000_000, 0));
    check(&format!("{a}\n{b}\n"), 2, 2.5);
    check(&json!([a, b]).to_string(), 2, 2.5);
    check(&entry("a", 2_000_000_000, 0).to_string(), 1, 2.0);
    check(&json!([{"name": "a scenario", "failures": [], "ledger": [entry("a", 2_000_000_000, 0)]}]).to_string(), 1, 2.0);
    let item = json!({"pk": {"S": "DECISION#c#1"}, "subject": {"S": "ledger"}, "data": {"S": a.to_string()}});
    check(&json!({"Items": [item], "Count": 1, "ScannedCount": 900}).to_string(), 1, 2.0);
}

#[test]
fn standard_input_is_read_once() {
    let args = SavingsArgs { files: vec!["-".into(), "-".into()], ..args() };
    let read = summarize(&args, "2026-01-05T12:00:00Z".parse().unwrap(), &mut "[]".as_bytes());
    assert!(read.status == 2 && read.faults[0].starts_with("standard input is named more than once"), "{:?}", read.faults);
}

#[test]
fn other_decisions_are_skipped_and_duplicate_entries_counted_once() {
    let other = json!({"at": "2026-01-05T10:00:00Z", "kind": "kept", "subject": "node/n", "message": "…", "detail": null});
    let twice = record("a", 2_000_000_000, 0);
    check(&json!([other, twice, twice]).to_string(), 1, 2.0);
}

#[test]
fn an_entry_of_a_known_id_with_another_price_is_told_and_not_counted() {
    let both = json!([record("a", 2_000_000_000, 0), record("a", 9_000_000_000, 0)]).to_string();
    let told = summary(&both, Output::Json);
    let whole: Value = serde_json::from_str(&told.text).unwrap();
    assert_eq!((told.status, whole["commands"].as_u64()), (1, Some(1)));
    let wanted = "standard input: value 1, item 2 has the id of standard input: value 1, item 1, \"a\", with other nodes or prices: it is not counted";
    assert_eq!(told.faults, [wanted]);
}

#[test]
fn what_was_done_at_another_time_is_not_denied_and_an_item_without_data_is_refused() {
    let before = "2025-01-01T00:00:00Z".parse().unwrap();
    let args = SavingsArgs { until: Some(before), ..args() };
    let told = summarize(&args, before, &mut record("a", 2_000_000_000, 0).to_string().as_bytes());
    assert_eq!(told.text, "No disruption command was executed in this time: one was at another.\n");
    let broken = summary(r#"{"Items": [{"subject": {"S": "ledger"}, "id": {"S": "x"}}]}"#, Output::Text);
    assert!(broken.faults.iter().any(|fault| fault.contains("is an item of the ledger without data")), "{:?}", broken.faults);
}

#[test]
fn an_empty_ledger_is_no_error_and_an_empty_input_is_one() {
    check("[]", 0, 0.0);
    check(r#"{"Items": [], "Count": 0}"#, 0, 0.0);
    assert_eq!(summary("[]", Output::Text).text, "No disruption command was executed: nothing was saved.\n");
    for nothing in ["", " \n"] {
        let nothing = summary(nothing, Output::Text);
        assert_eq!((nothing.status, nothing.text.as_str()), (2, ""));
        assert!(nothing.faults[0].starts_with("standard input is empty: name an export"), "{:?}", nothing.faults);
    }
}

#[test]
fn unreadable_entries_are_reported_and_skipped() {
    let good = record("a", 2_000_000_000, 0);
    let mut negative = record("b", 0, 0);
    negative["detail"]["ledger"]["beforeNanos"] = json!(-5);
    let some = summary(&format!("{good} {negative} 7"), Output::Json);
    assert_eq!(some.status, 1);
    assert_eq!(some.faults.len(), 2, "{:?}", some.faults);
    assert!(some.faults[0].starts_with("standard input: value 2 is no ledger entry"), "{}", some.faults[0]);
    assert!(some.faults[1].contains("is neither a ledger entry nor a decision: name an export of the table"), "{}", some.faults[1]);
    let broken = summary(&format!("{good}\n{{\"at\": "), Output::Text);
    assert_eq!(broken.status, 1);
    assert!(broken.faults[0].contains("value 2 is not JSON"), "{:?}", broken.faults);
    assert_eq!((summary("nonsense", Output::Text).status, summary("nonsense", Output::Text).text.as_str()), (2, ""));
    let args = SavingsArgs { files: vec!["/nowhere/ledger.json".into()], ..args() };
    assert_eq!(summarize(&args, Timestamp::UNIX_EPOCH, &mut std::io::empty()).status, 2);
    let folder = SavingsArgs { files: vec![env!("CARGO_MANIFEST_DIR").into()], ..args };
    let faults = summarize(&folder, Timestamp::UNIX_EPOCH, &mut std::io::empty()).faults;
    assert!(faults[0].ends_with("is a directory: name the files in it"), "{faults:?}");
}

#[test]
fn only_the_first_errors_are_printed() {
    let summary = summary(&"7 ".repeat(1_000), Output::Text);
    assert_eq!(summary.faults.len(), 20);
    assert_eq!(summary.faults[19], "and 981 more faults");
}

#[test]
fn sums_beyond_64_bits_are_printed() {
    let lines: String = (0..1_000).map(|n| format!("{}\n", record(&n.to_string(), u64::MAX, 0))).collect();
    let summary = summary(&lines, Output::Text);
    assert_eq!(summary.status, 0);
    assert!(summary.text.starts_with("1000 commands removed 1000 nodes and moved 4000 pods.\n"), "{}", summary.text);
}

#[test]
fn only_commands_within_the_requested_time_count_and_savings_accrue_until_its_end() {
    let args = |since: &str| SavingsArgs { since: Some(since.parse().unwrap()), output: Output::Json, ..args() };
    let until: Timestamp = "2026-01-05T12:00:00Z".parse().unwrap();
    let input = record("a", 2_000_000_000, 500_000_000).to_string();
    let counted = |since: &str| -> Value { serde_json::from_str(&summarize(&args(since), until, &mut input.as_bytes()).text).unwrap() };
    assert_eq!(counted("1h")["commands"], 0);
    assert_eq!(counted("3h")["commands"], 1);
    assert_eq!(counted("3h")["dollarsSaved"], 3.0, "two hours at 1.5 dollars");
}

/// A record of shadow mode at this minute past ten.
fn shadow_records(minute: u32, entries: &[Value]) -> Value {
    let detail = json!({ "shadow": entries });
    json!({"at": format!("2026-01-05T10:{minute:02}:00Z"), "kind": "kept", "subject": "shadow", "message": "…", "detail": detail})
}

#[test]
fn shadow_savings_accrue_while_the_command_is_recorded() {
    let (one, other) = (entry("", 3_000_000_000, 1_000_000_000), entry("", 500_000_000, 0));
    let input =
        json!([shadow_records(0, std::slice::from_ref(&one)), shadow_records(30, &[one, other]), shadow_records(45, &[])]).to_string();
    let value: Value = serde_json::from_str(&summary(&input, Output::Json).text).unwrap();
    assert_eq!(value["commands"], 0, "nothing was executed");
    assert_valid(Document::Savings, &value);
    assert_eq!(value["shadow"], json!({"commands": 2, "dollarsPerHour": 0.0, "dollarsSaved": 1.625, "byNodePool": {"default": 1.625}}));
    let text = summary(&input, Output::Text).text;
    assert!(text.contains("In shadow mode 2 commands were found: $0.0000 an hour would be saved now, $1.62"), "{text}");
}

#[test]
fn a_current_shadow_command_saves_until_now() {
    let input = shadow_records(0, &[entry("", 3_000_000_000, 1_000_000_000)]).to_string();
    let value: Value = serde_json::from_str(&summary(&input, Output::Json).text).unwrap();
    assert_eq!((&value["shadow"]["dollarsPerHour"], &value["shadow"]["dollarsSaved"]), (&json!(2.0), &json!(4.0)));
    let broken = json!({"at": "2026-01-05T10:00:00Z", "subject": "shadow", "detail": {"shadow": 7}}).to_string();
    assert_eq!(summary(&broken, Output::Json).status, 2);
}

#[test]
fn a_simulation_saves_nothing_after_its_end() {
    let outcome = json!({
        "name": "a scenario", "failures": [], "ledger": [entry("a", 3_600_000_000, 0)],
        "lines": [{"at": "2026-01-05T09:00:00Z", "text": "first"}, {"at": "2026-01-05T10:09:59Z", "text": "last"}],
    });
    let saved = |input: &str, until: Option<&str>| {
        let args = SavingsArgs { until: until.map(|at| at.parse().unwrap()), output: Output::Json, ..args() };
        let now = until.unwrap_or("2026-11-25T00:00:00Z").parse().unwrap();
        let summary = summarize(&args, now, &mut input.as_bytes());
        serde_json::from_str::<Value>(&summary.text).unwrap()["dollarsSaved"].as_f64().unwrap()
    };
    assert_eq!(saved(&json!([outcome]).to_string(), None), 0.6, "ten minutes at 3.60 an hour");
    assert_eq!(saved(&json!([outcome]).to_string(), Some("2026-01-05T11:00:00Z")), 3.6, "--until is obeyed");
    // A ledger of a real cluster goes on, and a simulation beside it does not.
    assert!(saved(&json!([outcome, record("b", 3_600_000_000, 0)]).to_string(), None) > 1000.0);
}

/// What `whittle local run -o json` prints of a simulation.
fn outcome(name: &str, node: &str) -> Value {
    let mut entry = entry("a", 3_600_000_000, 0);
    entry["nodes"] = json!([node]);
    json!({
        "name": name, "failures": [], "ledger": [entry], "summary": {"endedAt": "2026-01-05T11:59:59Z"},
        "lines": [{"at": "2026-01-05T09:00:00Z", "text": "first"}, {"at": "2026-01-05T10:09:59Z", "text": "last"}],
    })
}

#[test]
fn a_simulation_ends_when_it_says_so_and_shares_no_commands_with_another() {
    let summed = |outcomes: &[Value]| {
        let document = json!({"formatVersion": 1, "scenarios": outcomes}).to_string();
        let summary = summarize(&SavingsArgs { output: Output::Json, ..args() }, Timestamp::now(), &mut document.as_bytes());
        let value: Value = serde_json::from_str(&summary.text).unwrap();
        (value["commands"].as_u64().unwrap(), value["dollarsSaved"].as_f64().unwrap())
    };
    let (a, b) = (outcome("a", "n.us-east-1.compute.internal"), outcome("b", "n.us-east-1.compute.internal"));
    assert_eq!(summed(std::slice::from_ref(&a)), (1, 7.2), "two hours at 3.60, not ten minutes");
    assert_eq!(summed(&[a.clone(), b]), (2, 14.4), "of one seed, and still two");
    let mut early = outcome("c", "n.us-east-1.compute.internal");
    early["summary"]["endedAt"] = json!("2026-01-05T10:59:59Z");
    assert_eq!(summed(&[a.clone(), early]), (2, 10.8), "each until its own end");
    assert_eq!(summed(&[a.clone(), a]).0, 1, "one outcome given twice");
}

#[test]
fn money_of_two_currencies_and_of_an_unknown_format_is_not_added_up() {
    let outcomes = [outcome("a", "n.us-east-1.compute.internal"), outcome("b", "n.cn-north-1.compute.internal")];
    let both = summary(&json!(outcomes).to_string(), Output::Text);
    assert_eq!((both.status, both.text.as_str()), (2, ""));
    assert!(both.faults[0].contains("the entries are in USD and CNY, which are not added up"), "{:?}", both.faults);
    let newer = summary(&json!({"formatVersion": 2, "scenarios": []}).to_string(), Output::Text);
    assert!(newer.status == 2 && newer.faults[0].contains("is of formatVersion 2"), "{newer:?}");
}

#[test]
fn a_report_stays_as_it_is_where_nothing_was_read() {
    let path = std::env::temp_dir().join(format!("whittle-kept-{}.md", std::process::id()));
    std::fs::write(&path, "kept").unwrap();
    let args = SavingsArgs { report: Some(path.clone()), ..args() };
    assert_eq!(summarize(&args, Timestamp::now(), &mut r#"{"x": 1}"#.as_bytes()).status, 2);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    let good = summarize(&args, Timestamp::now(), &mut record("a", 2_000_000_000, 0).to_string().as_bytes());
    assert_eq!((good.status, std::fs::read_to_string(&path).unwrap().contains("1 command removed 1 node")), (0, true));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_report_of_no_known_format_is_refused_before_anything_is_read() {
    let args = SavingsArgs { report: Some("out.txt".into()), ..args() };
    let ledger = record("a", 2_000_000_000, 0).to_string();
    let mut stdin = ledger.as_bytes();
    let refused = summarize(&args, Timestamp::now(), &mut stdin);
    assert_eq!((refused.status, refused.text.as_str(), stdin.len()), (2, "", ledger.len()), "{refused:?}");
    assert!(refused.faults[0].contains("out.txt") && refused.faults[0].ends_with("its name ends in .md or .html"), "{refused:?}");
    assert!(!std::path::Path::new("out.txt").exists());
}

#[test]
fn a_ledger_forges_no_lines_and_a_loss_is_written_as_one() {
    let mut forged = record("a", 1_000_000_000, 2_000_000_000);
    forged["detail"]["ledger"]["reason"] = json!("Empty: $9.0000 an hour\n  reason Drifted");
    forged["detail"]["ledger"]["nodePools"] = json!(["\u{1b}[2Jdefault"]);
    let summary = summary(&forged.to_string(), Output::Text);
    assert_eq!(summary.text.lines().filter(|line| line.starts_with("  reason ")).count(), 1, "{}", summary.text);
    assert!(!summary.text.contains('\u{1b}') && summary.text.contains("-$1.0000 an hour saved"), "{}", summary.text);
}

#[test]
fn a_simulation_within_another_ends_with_it() {
    let mut outer = outcome("outer", "n.us-east-1.compute.internal");
    let mut inner = outcome("inner", "n.us-east-1.compute.internal");
    inner["summary"]["endedAt"] = json!("2026-01-05T10:59:59Z");
    let own = outer["ledger"][0].clone();
    outer["ledger"] = json!([inner, own]);
    let summary = summarize(&SavingsArgs { output: Output::Json, ..args() }, Timestamp::now(), &mut json!([outer]).to_string().as_bytes());
    let value: Value = serde_json::from_str(&summary.text).unwrap();
    assert_eq!((value["commands"].as_u64(), value["dollarsSaved"].as_f64()), (Some(2), Some(14.4)), "{summary:?}");
}
