//! The template beside prebuilt functions, as `cargo xtask dist` writes it: what it deploys is what `template.yaml` deploys.

use super::tool;
use crate::{dist, environment, shell};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Has SAM validate the template of each architecture, and compares it with the one that is built from sources.
pub(super) fn check(root: &Path, sam: &Path, transformed: &Value) -> Result<Vec<String>> {
    let source = std::fs::read_to_string(root.join(super::TEMPLATE))?;
    let mut found = Vec::new();
    for architecture in dist::ARCHITECTURES {
        let path = environment::cache()?.join(format!("prebuilt-{architecture}.yaml"));
        std::fs::write(&path, dist::prebuilt(&source, architecture)?).with_context(|| format!("{} cannot be written", path.display()))?;
        let path = path.to_string_lossy();
        shell::run(tool(root, sam, "sam", &["validate", "--lint", "-t", &path]))?;
        let printed = shell::read(tool(root, sam, "python", &["tests/python/transform.py", &path]))?;
        let prebuilt = serde_json::from_str(&printed).context("the transformed template is no JSON")?;
        found.extend(differences(transformed, &prebuilt, architecture));
    }
    Ok(found)
}

/// One sentence for each part that deploys something else.
fn differences(built: &Value, prebuilt: &Value, architecture: &str) -> Vec<String> {
    let (built, prebuilt) = (comparable(built, architecture), comparable(prebuilt, architecture));
    let mut found = Vec::new();
    for section in ["Parameters", "Conditions", "Resources", "Outputs"] {
        let (Some(one), Some(other)) = (built[section].as_object(), prebuilt[section].as_object()) else {
            found.push(format!("the prebuilt template for {architecture} has no {section}: correct xtask/src/dist/template.rs"));
            continue;
        };
        let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
        for name in names.filter(|name| one.get(*name) != other.get(*name)) {
            found.push(format!(
                "{section}/{name} of the prebuilt template for {architecture} is not that of template.yaml: correct xtask/src/dist/template.rs"
            ));
        }
    }
    found
}

/// The template with the choice of the architecture made, and without what only the build needs.
fn comparable(template: &Value, architecture: &str) -> Value {
    let mut template = template.clone();
    if let Some(parameters) = template["Parameters"].as_object_mut() {
        parameters.remove("Architecture");
    }
    for resource in template["Resources"].as_object_mut().into_iter().flat_map(|resources| resources.values_mut()) {
        // The transform hands a function's metadata down to what it makes of the function.
        if let Some(fields) = resource.as_object_mut() {
            fields.remove("Metadata");
        }
        if resource["Type"] == "AWS::Lambda::Function" {
            let chosen = &mut resource["Properties"]["Architectures"];
            if *chosen == serde_json::json!([{"Ref": "Architecture"}]) {
                *chosen = serde_json::json!([architecture]);
            }
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::{Value, json};

    fn template(architecture: &Value, memory: u32) -> Value {
        json!({
            "Parameters": {"Clusters": {}},
            "Conditions": {},
            "Outputs": {},
            "Resources": {"Relay": {
                "Type": "AWS::Lambda::Function",
                "Properties": {"Architectures": architecture, "MemorySize": memory},
            }},
        })
    }

    #[test]
    fn only_the_choice_and_the_build_may_be_different() {
        let mut built = template(&json!([{"Ref": "Architecture"}]), 128);
        built["Parameters"]["Architecture"] = json!({"Default": "arm64"});
        built["Resources"]["Relay"]["Metadata"] = json!({"BuildMethod": "rust-cargolambda"});
        assert_eq!(differences(&built, &template(&json!(["x86_64"]), 128), "x86_64"), Vec::<String>::new());
        for other in [template(&json!(["arm64"]), 128), template(&json!(["x86_64"]), 256)] {
            let found = differences(&built, &other, "x86_64");
            assert!(found.len() == 1 && found[0].starts_with("Resources/Relay of the prebuilt template for x86_64"), "{found:?}");
        }
        let mut less = template(&json!(["x86_64"]), 128);
        less["Parameters"] = json!({"Other": {}});
        assert_eq!(differences(&built, &less, "x86_64").len(), 2, "one is missing, one is new");
    }
}
