//! Sums of money that `whittle consolidate` prints.

use crate::{err, out, tests, whittle};

#[test]
fn the_savings_of_a_command_are_not_those_of_each_of_its_nodes() {
    let input = tests().join("golden/consolidation/003-empty-several/input.yaml").display().to_string();
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let text = |format: &str| {
        let output = whittle(&["consolidate", "-f", &input, "--instance-types", &catalog, "-o", format], "");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    let printed = text("text");
    let together: Vec<&str> = printed.lines().filter(|line| line.contains("(savings: $0.38 an hour) together with ")).collect();
    assert_eq!(together.len(), 2, "{printed}");
    assert!(printed.contains("together: $0.38 an hour saved, $280.32 a month"), "{printed}");
    assert!(!text("json").contains("together"), "programs read the command for that");
}
