use super::chart::{self, MACHINES_MAX, Span};
use super::*;
use std::path::Path;

fn report(cell: &str) -> Report {
    let section = Section::of_table("To launch", &["LAUNCH", "TYPE"], vec![vec!["2".into(), cell.into()]]).unwrap();
    Report { title: "Plan".into(), lead: vec!["2 of 2 pods placed".into()], sections: vec![section] }
}

#[test]
fn markdown_has_a_table_of_githubs_form() {
    let expected = "# Plan\n\n2 of 2 pods placed\n\n## To launch\n\n| LAUNCH | TYPE |\n| --- | --- |\n| 2 | m7g.large |\n";
    assert_eq!(markdown(&report("m7g.large")), expected);
}

#[test]
fn words_of_others_are_shown_and_never_interpreted() {
    let hostile = "a|b\n</td><script>alert(1)</script> [x](javascript:1) **b** @team";
    let text = markdown(&report(hostile));
    assert!(text.contains(r"a\|b \</td\>\<script\>alert(1)\</script\> \[x\](javascript:1) \*\*b\*\* \@team"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), 3, "a row stays a row");
    let page = html(&report(hostile));
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"), "{page}");
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html(&report("m7g.large"));
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("default-src 'none'"));
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<td class=\"number\">2</td><td>m7g.large</td>"), "{page}");
}

#[test]
fn nothing_has_no_table() {
    assert!(Section::of_table("To launch", &["LAUNCH"], vec![]).is_none());
    assert_eq!(markdown(&Report { title: "Plan".into(), ..Report::default() }), "# Plan\n");
}

#[test]
fn the_name_of_a_file_says_its_format() {
    assert_eq!(Kind::of_file(Path::new("a/plan.html")), Ok(Kind::Html));
    assert_eq!(Kind::of_file(Path::new("plan.md")), Ok(Kind::Markdown));
    assert!(Kind::of_file(Path::new("plan.pdf")).unwrap_err().contains("ends in .md or .html"));
}

#[test]
fn charts_are_drawn_at_every_size() {
    for steps in [vec![], vec![(0.0, 0.0)], vec![(0.0, 0.1), (60.0, 1234.5), (90.0, 0.0)]] {
        let svg = chart::cost(&steps, steps.last().map_or(0.0, |(at, _)| *at)).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }
    let span = |number: usize| Span { name: format!("<m{number}>"), is_spot: number.is_multiple_of(2), from: 10.0, to: 5.0 };
    for machines in [0, 1, MACHINES_MAX + 50] {
        let svg = chart::machines(&(0..machines).map(span).collect::<Vec<_>>(), 60.0).unwrap();
        assert!(!svg.contains("<m0>") && !svg.contains(&format!("m{MACHINES_MAX}")), "names are escaped, and those beyond are left out");
    }
}
