//! Packages of Debian, unpacked into a folder of the cache: nothing is installed, and other versions on the machine do not matter.

use super::{fingerprint, lock};
use crate::shell;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Where the packages come from, unless `WHITTLE_DEBIAN` names a mirror.
const MIRROR: &str = "http://deb.debian.org";
/// Written last: a folder without it was interrupted.
const COMPLETE: &str = ".complete";

/// One line of a file of pins.
#[derive(Debug, PartialEq)]
struct Pin {
    sha256: String,
    /// The path below the mirror.
    path: String,
}

impl Pin {
    /// The package's file name.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The folder with the packages of `tests/debian/<name>.txt`.
pub(super) fn set_up(root: &Path, cache: &Path, name: &str) -> Result<PathBuf> {
    let file = format!("tests/debian/{name}.txt");
    let text = std::fs::read_to_string(root.join(&file)).with_context(|| format!("{file} cannot be read"))?;
    let pins = pins(&text).with_context(|| file.clone())?;
    let parent = cache.join("debian");
    let folder = parent.join(format!("{name}-{}", fingerprint(text.as_bytes())));
    if folder.join(COMPLETE).exists() {
        return Ok(folder);
    }
    let _lock = lock(&parent, name)?;
    if folder.join(COMPLETE).exists() {
        return Ok(folder);
    }
    eprintln!("unpacking {} packages of Debian into {}", pins.len(), folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let mirror = std::env::var("WHITTLE_DEBIAN").ok().filter(|value| !value.is_empty()).unwrap_or_else(|| MIRROR.to_owned());
    for pin in &pins {
        let package = download(&mirror, pin, &folder, &file)?;
        let unpack = shell::command(root, "dpkg-deb", &["-x", &package.to_string_lossy(), &folder.to_string_lossy()]);
        shell::read(unpack)
            .with_context(|| format!("{} cannot be unpacked: `dpkg-deb` is part of Debian and its relatives", pin.name()))?;
        std::fs::remove_file(&package)?;
    }
    std::fs::write(folder.join(COMPLETE), b"")?;
    Ok(folder)
}

/// Downloads one package and compares its checksum.
fn download(mirror: &str, pin: &Pin, folder: &Path, pins: &str) -> Result<PathBuf> {
    let (target, address) = (folder.join(pin.name()), format!("{}/{}", mirror.trim_end_matches('/'), pin.path));
    let arguments = ["--silent", "--show-error", "--fail", "--location", "--retry", "3", "--output"];
    let mut curl = shell::command(folder, "curl", &arguments);
    curl.arg(&target).arg(&address);
    shell::read(curl).with_context(|| {
        format!(
            "{} cannot be downloaded from {mirror}: if the mirror answers (another is named by WHITTLE_DEBIAN), a newer version has taken its \
             place: pin that one in {pins}",
            pin.name()
        )
    })?;
    let bytes = std::fs::read(&target)?;
    let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != pin.sha256 {
        bail!("{address} has the SHA-256 {found}, not the {} of {pins}: find out why before you correct the pin", pin.sha256);
    }
    Ok(target)
}

/// Parses lines like `SHA256 debian r/rustc/rustc_1_amd64.deb`; `security` instead of `debian` is its archive of security updates.
fn pins(text: &str) -> Result<Vec<Pin>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [sha256, archive, path] = words[..] else {
                bail!("`{line}` is not a SHA-256, an archive and a path");
            };
            let base = match archive {
                "debian" => "debian/pool/main",
                "security" => "debian-security/pool/updates/main",
                other => bail!("`{other}` is no archive: write debian or security"),
            };
            let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_digest || path.contains("..") || !path.ends_with(".deb") {
                bail!("`{line}` has no SHA-256 in lower case, or names no package");
            }
            Ok(Pin { sha256: sha256.to_owned(), path: format!("{base}/{path}") })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_pin_of_the_repository_is_read() {
        for (name, expected) in [("arm64", "rustc-web"), ("qemu", "qemu-user-static")] {
            let text = std::fs::read_to_string(workspace::root().join(format!("tests/debian/{name}.txt"))).expect("it exists");
            let pins = pins(&text).expect("they are well formed");
            assert!(pins.iter().any(|pin| pin.name().starts_with(expected)), "{name}");
        }
    }

    #[test]
    fn a_line_that_is_no_pin_is_named() {
        let digest = "a".repeat(64);
        let read = pins(&format!("# why\n\n{digest} security x/y_1_amd64.deb\n")).expect("it is well formed");
        assert_eq!(read, [Pin { sha256: digest.clone(), path: "debian-security/pool/updates/main/x/y_1_amd64.deb".to_owned() }]);
        for line in [
            "x.deb".to_owned(),
            format!("{digest} ubuntu x.deb"),
            format!("{digest} debian ../x.deb"),
            format!("{} debian x.deb", digest.to_uppercase()),
            format!("{digest} debian x.deb y"),
        ] {
            let error = pins(&line).expect_err(&line).to_string();
            assert!(error.starts_with('`'), "{error}");
        }
    }

    #[test]
    fn a_package_that_is_gone_or_changed_names_its_pin() {
        let folder = std::env::temp_dir().join(format!("whittle-debian-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("debian")).expect("it can be made");
        std::fs::write(folder.join("debian/here.deb"), "other contents").expect("it can be written");
        let mirror = format!("file://{}", folder.display());
        let ask = |path: &str| {
            let pin = Pin { sha256: "0".repeat(64), path: path.to_owned() };
            format!("{:#}", download(&mirror, &pin, &folder, "tests/debian/x.txt").expect_err("it is not right"))
        };
        let (gone, changed) = (ask("debian/gone.deb"), ask("debian/here.deb"));
        assert!(gone.contains("gone.deb cannot be downloaded") && gone.contains("tests/debian/x.txt"), "{gone}");
        assert!(changed.contains("SHA-256") && changed.contains("tests/debian/x.txt"), "{changed}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
