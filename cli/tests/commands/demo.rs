//! `whittle demo`: what its story tells, and that its sum is that of the story.

use crate::{err, out, tests, whittle};

/// The lines of the story that somebody has a part in: `you`, `whittle`, `ec2`.
fn lines_of<'a>(text: &'a str, who: &str) -> Vec<&'a str> {
    let marked = text.lines().filter_map(|line| line.get(10..20).map(|mark| (mark.trim(), &line[20..])));
    marked.filter(|(mark, _)| *mark == who).map(|(_, told)| told.trim()).collect()
}

#[test]
fn the_story_tells_each_thing_once() {
    let ended = whittle(&["demo"], "");
    let text = out(&ended);
    assert!(ended.status.success(), "{text}{}", err(&ended));
    let (starts, plans) = (lines_of(&text, "ec2"), lines_of(&text, "whittle"));
    let machines: Vec<&str> = starts.iter().filter_map(|line| line.strip_prefix("EC2 starts ")?.split(':').next()).collect();
    assert_eq!(machines.len(), 2, "{text}");
    for machine in &machines {
        let told = |word: &str| text.lines().filter(|line| line.contains(machine) && line.contains(word)).count();
        assert_eq!((told("starts"), told("has ended")), (1, 1), "{text}");
        assert!(!plans.iter().any(|line| line.contains(machine)), "that it is started is told by EC2 alone:\n{text}");
    }
    for joined in ["joined", "is ready"] {
        assert_eq!(text.lines().filter(|line| line.ends_with(joined)).count(), 2, "{text}");
    }
    let of = |start: &str| plans.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!([of("nodeclaim/"), of("command/"), of("node/"), plans.len()], [2, 1, 2, 5], "plans, one command, two drains:\n{text}");
    assert!(plans.iter().filter(|line| line.starts_with("node/")).all(|line| line.contains("all drainable pods are gone")), "{text}");
    assert_eq!(lines_of(&text, "event").len(), 1, "{text}");
}

#[test]
fn the_last_line_of_the_story_is_its_sum() {
    let text = out(&whittle(&["demo"], ""));
    let sum = text.lines().find(|line| line.starts_with("In 00:0")).unwrap_or_else(|| panic!("{text}"));
    let offers: Vec<String> = lines_of(&text, "ec2")
        .iter()
        .filter_map(|line| {
            let offer = line.strip_prefix("EC2 starts ")?.split_once(": ")?.1;
            let (machine, rest) = offer.split_once(" in ")?;
            Some(format!("{machine} at {}", rest.split_once(" at ")?.1.split_whitespace().next()?))
        })
        .collect();
    assert_eq!(offers.len(), 2, "{text}");
    assert!(sum.contains(&format!(": 2 machines bought ({})", offers.join(", "))), "{sum}");
    let rate = |text: &str| text.rsplit_once('$').unwrap().1.split('/').next().unwrap().parse::<f64>().unwrap();
    let most = text.lines().filter(|line| line.ends_with("/h]")).map(rate).fold(0.0, f64::max);
    assert!(sum.contains(&format!("at most ${most:.4}/h at once")), "{most} {sum}");
    // The second machine is the one that consolidation removed.
    assert!(sum.contains(&format!("consolidation removed 1 node and saves ${:.4}/h; 0 left", rate(&offers[1]))), "{sum}");
    let paid: f64 = sum.split(" and $").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(0.0 < paid && paid < most * 300.0 / 3600.0, "less than both machines cost in five minutes: {sum}");
}

#[test]
fn the_lines_that_the_readme_shows_are_those_of_the_story() {
    let readme = std::fs::read_to_string(tests().join("../README.md")).unwrap();
    let shown = readme.split_once("Of what it prints, the interruption:\n\n```text\n").unwrap().1.split_once("```").unwrap().0;
    let text = out(&whittle(&["demo"], ""));
    let mut rest = text.lines();
    assert!(shown.lines().count() > 3, "{shown}");
    for line in shown.lines() {
        assert!(rest.any(|told| told == line), "not in the story, or not in this order: {line}\n{text}");
    }
}
