//! `SHA256SUMS`, which `sha256sum -c` reads.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::path::Path;

pub(super) const FILE: &str = "SHA256SUMS";

/// Writes the checksums of all files of a folder into it.
pub(super) fn write(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    collect(folder, "", &mut names)?;
    names.sort();
    let mut text = String::new();
    for name in names {
        let path = folder.join(&name);
        let bytes = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{digest}  {name}\n"));
    }
    let path = folder.join(FILE);
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// The files below a folder, relative to the outermost one.
fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else if name != FILE {
            names.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::shell;

    #[test]
    fn sha256sum_agrees_and_notices_a_change() {
        let folder = std::env::temp_dir().join(format!("whittle-sums-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("b/c")).expect("it can be made");
        for name in ["z", "a file", "b/c/d"] {
            std::fs::write(folder.join(name), name).expect("it can be written");
        }
        write(&folder).expect("it is written");
        let first = std::fs::read_to_string(folder.join(super::FILE)).expect("it exists");
        write(&folder).expect("it is written again, without itself");
        assert_eq!(std::fs::read_to_string(folder.join(super::FILE)).expect("it exists"), first);
        let check = || shell::read(shell::command(&folder, "sha256sum", &["-c", super::FILE]));
        assert_eq!(check().expect("they agree"), "a file: OK\nb/c/d: OK\nz: OK\n");
        std::fs::write(folder.join("z"), "changed").expect("it can be written");
        assert!(check().is_err());
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
