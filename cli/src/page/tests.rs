use super::picture::{Costs, Picture, Seen};
use super::view::{LINES_MAX, new_lines};
use super::{Document, Guard, parts_for};
use jiff::Timestamp;
use serde_json::{Value, json};
use whittle_sim::{Line, LineKind};
use whittle_units::Price;

fn line(second: i64, dollars: f64) -> Line {
    let at = Timestamp::from_second(second).unwrap();
    Line { at, kind: LineKind::Cloud, text: format!("line at {second}"), cost: Price::from_dollars(dollars) }
}

#[test]
fn costs_add_up_over_time_however_often_they_are_read() {
    let lines = [line(0, 0.0), line(0, 2.0), line(1_800, 2.0), line(3_600, 0.5), line(7_200, 0.0)];
    let (mut whole, mut parts) = (Costs::default(), Costs::default());
    whole.read(&lines);
    for end in 1..=lines.len() {
        parts.read(&lines[..end]);
        parts.read(&lines[..end]);
    }
    let later = Timestamp::from_second(100_000).unwrap();
    assert_eq!(whole.spent(later), 2_500_000_000, "two dollars in the first hour, half of one in the second");
    assert_eq!(parts.spent(later), whole.spent(later));
    assert_eq!(whole.steps, [(0, 0), (0, 2_000_000_000), (3_600_000, 500_000_000), (7_200_000, 0)]);
    assert_eq!(parts.steps, whole.steps);
    let mut running = Costs::default();
    running.read(&lines[..2]);
    assert_eq!(running.spent(Timestamp::from_second(900).unwrap()), 500_000_000, "what runs costs between lines too");
}

#[test]
fn a_page_gets_the_lines_that_it_lacks() {
    let lines: Vec<Line> = (0..3_000).map(|second| line(second, 0.0)).collect();
    let texts = |seen| serde_json::to_value(new_lines(&lines, seen)).unwrap();
    assert_eq!(texts(2_998), json!([[2_998_000, "cloud", "line at 2998"], [2_999_000, "cloud", "line at 2999"]]));
    assert_eq!(texts(3_000), json!([]));
    assert_eq!(texts(9_999), json!([]), "a page of an earlier session");
    let all = texts(0);
    assert_eq!((all.as_array().unwrap().len(), &all[0][0]), (2_000, &json!(1_000_000)), "only the last");
}

#[test]
fn a_page_of_a_timeline_whose_start_was_forgotten_gets_each_line_once() {
    let mut picture = Picture::default();
    let told = |picture: &Picture, seen: &str| -> (Vec<String>, Value) {
        let news = picture.news(&Seen::of(seen), "", Timestamp::UNIX_EPOCH, json!({}));
        let news: Value = news.map_or(Value::Null, |news| serde_json::from_str(&news).unwrap());
        let lines = news["told"].as_array().into_iter().flatten();
        (lines.map(|line| line[2].as_str().unwrap().to_owned()).collect(), news["lines"].clone())
    };
    for second in 0..=4_000 {
        picture.lines.push(line(second, 0.0));
        picture.forget_old_lines();
        assert!(picture.lines.len() <= 2 * LINES_MAX, "{second}");
    }
    assert_eq!(picture.lines.len(), LINES_MAX, "the last were kept");
    assert_eq!(told(&picture, "lines=3999"), (vec!["line at 3999".to_owned(), "line at 4000".to_owned()], json!(4_001)));
    assert_eq!(told(&picture, "lines=4001&costs=0&version=0").0, Vec::<String>::new());
    let (all, _) = told(&picture, "lines=10");
    assert_eq!((all.len(), all[0].as_str()), (LINES_MAX, "line at 2001"));
    assert_eq!(told(&picture, "lines=9999").0, Vec::<String>::new(), "a page of an earlier session");
}

fn guard(bound: &str) -> Guard {
    Guard { bound: bound.parse().unwrap(), token: "0123456789abcdef".to_owned() }
}

#[track_caller]
fn check_host(bound: &str, host: &str, expected: bool) {
    assert_eq!(guard(bound).is_ours(Some(host)), expected, "{host} at {bound}");
}

#[test]
fn only_names_that_cannot_be_pointed_elsewhere_are_ours() {
    for ours in ["127.0.0.1:8000", "localhost:8000", "LocalHost:8000", "[::1]:8000", "127.0.0.1", "[::1]", "localhost:9000"] {
        check_host("127.0.0.1:8000", ours, true);
    }
    for foreign in ["rebound.example:8000", "localhost.example:8000", "10.0.0.1:8000", "", ":8000", "127.0.0.1:x", "127.0.0.1:80:80"] {
        check_host("127.0.0.1:8000", foreign, false);
    }
    check_host("0.0.0.0:8000", "10.0.0.1:8000", true);
    check_host("0.0.0.0:8000", "rebound.example:8000", false);
    assert!(!guard("127.0.0.1:8000").is_ours(None));
}

#[test]
fn tokens_and_origins_must_be_right() {
    let guard = guard("127.0.0.1:8000");
    assert!(guard.knows(Some("0123456789abcdef")));
    for wrong in [None, Some(""), Some("0123456789abcdee"), Some("0123456789abcdef0")] {
        assert!(!guard.knows(wrong), "{wrong:?}");
    }
    let is_foreign = |origin: Option<&str>| Guard::is_foreign(origin, Some("localhost:9000"));
    assert!(!is_foreign(None), "programs name none");
    assert!(!is_foreign(Some("http://localhost:9000")), "through a tunnel, too");
    for foreign in
        ["http://localhost:8000", "https://localhost:9000", "null", "http://rebound.example:9000", "http://localhost:9000.example"]
    {
        assert!(is_foreign(Some(foreign)), "{foreign}");
    }
    assert!(Guard::is_foreign(Some("http://localhost:9000"), None));
}

#[test]
fn no_part_of_the_page_makes_markup_of_text_or_loads_from_elsewhere() {
    for (name, text) in [
        ("page.js", include_str!("page.js")),
        ("texts.js", include_str!("texts.js")),
        ("grid.js", include_str!("grid.js")),
        ("chart.js", include_str!("chart.js")),
        ("console.js", include_str!("../console/console.js")),
        ("session.js", include_str!("../local/web/session.js")),
        ("page.html", include_str!("page.html")),
        ("page.css", include_str!("page.css")),
    ] {
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://", "//cdn"] {
            assert!(!text.contains(sink), "{name} has {sink}");
        }
    }
    let html = include_str!("page.html");
    assert!(!html.contains(" style=") && !html.contains("onclick=") && !html.contains("<script>"), "the policy forbids them");
}

#[test]
fn parts_of_another_page_are_left_out() {
    let text = "a<!--only session-->b<!--end-->c<!--only console-->d<!--end-->e";
    assert_eq!((parts_for(text, "session").as_str(), parts_for(text, "console").as_str()), ("abce", "acde"));
    assert_eq!(parts_for("a", "session"), "a");
    for kind in ["session", "console"] {
        let html = Document::of(kind, ("/x.js", "")).html;
        assert!(html.contains("</html>") && !html.contains("<!--"), "every part is closed: {html}");
        assert_eq!(html.matches("<dialog").count(), html.matches("</dialog>").count());
    }
}
