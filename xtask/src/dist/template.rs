//! The template and the settings of SAM beside prebuilt functions: nothing is left to build, and nothing to choose.

use crate::artifacts::FUNCTIONS;
use anyhow::{Result, bail};

/// The template with the archives of one architecture in place of sources.
pub(crate) fn prebuilt(template: &str, architecture: &str) -> Result<String> {
    let mut lines = Vec::new();
    let mut replaced: Vec<&str> = Vec::new();
    let (mut fixed, mut grouped, mut removed) = (0, 0, 0);
    let mut rest = template.lines().peekable();
    while let Some(line) = rest.next() {
        if let Some(name) = line.trim_start().strip_prefix("CodeUri: functions/") {
            replaced.push(name);
            lines.push(format!("{line}.zip"));
        } else if line.trim() == "Metadata:" && rest.peek().is_some_and(|next| next.trim().starts_with("BuildMethod:")) {
            skip_block(line, &mut rest);
        } else if line == "  Architecture:" {
            removed += 1;
            skip_block(line, &mut rest);
        } else if line.trim() == "Architectures: [!Ref Architecture]" {
            fixed += 1;
            lines.push(line.replace("!Ref Architecture", architecture));
        } else if line.trim_start().starts_with("Parameters: [") && line.contains("[Architecture, ") {
            grouped += 1;
            lines.push(line.replace("[Architecture, ", "["));
        } else {
            lines.push(line.to_owned());
        }
    }
    let text = lines.join("\n") + "\n";
    let mut expected = FUNCTIONS.to_vec();
    expected.sort_unstable();
    replaced.sort_unstable();
    let is_left = ["BuildMethod", "!Ref Architecture", "${Architecture}"].iter().any(|word| text.contains(word));
    if replaced != expected || (fixed, grouped, removed) != (1, 1, 1) || is_left {
        bail!(
            "template.yaml is not as xtask/src/dist/template.rs knows it: CodeUri of {}; Architectures {fixed} times, the parameter \
             Architecture {removed} times, in {grouped} groups; expected each function, and once each",
            replaced.join(", ")
        );
    }
    Ok(text)
}

/// Skips the lines that are indented below this one.
fn skip_block<'a>(line: &str, rest: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) {
    let depth = indentation(line);
    while rest.peek().is_some_and(|next| !next.trim().is_empty() && depth < indentation(next)) {
        rest.next();
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The settings of `samconfig.toml`, with what is to do said for prebuilt functions.
pub(super) fn settings(samconfig: &str, version: &str, architecture: &str) -> String {
    let mut text = format!(
        "# Whittle {version} with functions for {architecture}, ready to deploy from this folder; nothing is built:\n\
         #\n\
         #   sam deploy --parameter-overrides Clusters=shop\n\
         #\n\
         # A deployment that is there keeps the values of parameters that are not named.\n"
    );
    for line in samconfig.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if line.starts_with('[') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn file(name: &str) -> String {
        std::fs::read_to_string(workspace::root().join(name)).expect("it exists")
    }

    #[test]
    fn only_what_builds_and_what_chooses_is_different() {
        let template = file("template.yaml");
        let text = prebuilt(&template, "arm64").expect("it is as expected");
        let mut lines = template.lines().peekable();
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for line in text.lines() {
            while lines.peek().is_some_and(|next| *next != line) && template.lines().any(|other| other == line) {
                gone.extend(lines.next());
            }
            if lines.peek() == Some(&line) {
                lines.next();
            } else {
                new.push(line.trim());
            }
        }
        gone.extend(lines);
        let mut expected: Vec<String> = FUNCTIONS.iter().map(|name| format!("CodeUri: functions/{name}.zip")).collect();
        expected.push("Architectures: [arm64]".to_owned());
        for line in &expected {
            assert_eq!(new.iter().filter(|found| *found == line).count(), 1, "{line}");
        }
        // The tenth is the group of parameters that the choice was in.
        assert_eq!(new.len(), expected.len() + 1, "{new:?}");
        let builds =
            |line: &&str| line.contains("Build") || line.contains("Binary:") || line.trim() == "Metadata:" || line.contains("CodeUri");
        let gone: Vec<&str> = gone.into_iter().filter(|line| !builds(line)).collect();
        assert_eq!(gone.len(), 7, "the parameter with four fields, its use and its group: {gone:#?}");
        assert!(
            gone.iter().all(|line| line.contains("rchitecture") || line.contains("arm64") || line.trim() == "Type: String"),
            "{gone:#?}"
        );
    }

    #[test]
    fn a_template_of_another_shape_is_refused() {
        let template = file("template.yaml");
        for (from, to) in [
            ("CodeUri: functions/relay\n", "CodeUri: elsewhere/relay\n"),
            ("CodeUri: functions/relay\n", "CodeUri: functions/sweep\n"),
            ("Architectures: [!Ref Architecture]", "Architectures: [!Sub \"${Architecture}\"]"),
            ("  Architecture:\n", "  Processor:\n"),
        ] {
            let changed = template.replace(from, to);
            assert_ne!(changed, template, "{from}");
            assert!(prebuilt(&changed, "arm64").is_err_and(|error| error.to_string().contains("dist/template.rs")), "{to}");
        }
    }

    #[test]
    fn the_settings_are_those_of_a_deployment_from_sources() {
        let samconfig = file("samconfig.toml");
        let text = settings(&samconfig, "0.1.0", "arm64");
        let values =
            |text: &str| text.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(values(&text), values(&samconfig));
        assert!(!text.contains("sam build") && text.contains("[default.deploy.parameters]"), "{text}");
    }
}
