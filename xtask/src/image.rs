//! Makes the watcher's container image without a daemon: an OCI image layout of static binaries and root certificates.
//!
//! The layout is reproducible: the same binaries and certificates give the same digests.

use crate::elf::{self, Elf, Linking};
use crate::{shell, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The binary, in its package and in the image.
pub(crate) const BINARY: &str = "whittle-watcher";
/// Where the image has its root certificates: there is no other file.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Neither root nor a user of the node.
const USER: &str = "65532:65532";
/// Targets whose binaries are linked statically, the first choice first: musl's always are.
const MUSL: &str = "x86_64-unknown-linux-musl";
const GNU: &str = "x86_64-unknown-linux-gnu";
/// Links a libc of GNU statically.
pub(crate) const STATIC: &str = "-Ctarget-feature=+crt-static";

/// Makes the watcher's container image as an OCI layout, which `skopeo copy oci:FOLDER docker://…` or `crane push` sends to a registry
#[derive(Args)]
pub(crate) struct Image {
    /// A static binary to pack instead of building one for x86-64, such as `cargo zigbuild --release -p whittle-watcher --target
    /// aarch64-unknown-linux-musl` makes; once for each architecture
    #[arg(long = "binary", value_name = "FILE")]
    binaries: Vec<PathBuf>,
    /// The root certificates that the watcher trusts
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    certificates: PathBuf,
    /// The layout's folder; by default `image` in the target directory. One that exists is replaced
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Builds, packs and writes.
pub(crate) fn run(options: &Image) -> Result<()> {
    let root = workspace::root();
    let target = workspace::target(&root)?;
    let binaries = if options.binaries.is_empty() { vec![build(&root, &target, &[])?] } else { options.binaries.clone() };
    let folder = options.output.clone().unwrap_or_else(|| target.join("image"));
    let digest = pack(&binaries, &certificates(&options.certificates)?, &folder)?;
    println!("{}\n{digest}", folder.display());
    Ok(())
}

/// Reads root certificates.
pub(crate) fn certificates(path: &Path) -> Result<Vec<u8>> {
    let certificates = std::fs::read(path)
        .with_context(|| format!("the root certificates {} cannot be read: name others by --certificates", path.display()))?;
    if !certificates.starts_with(b"-----BEGIN CERTIFICATE") && !certificates.windows(27).any(|part| part == b"-----BEGIN CERTIFICATE-----")
    {
        bail!("{} has no certificate in the format PEM", path.display());
    }
    Ok(certificates)
}

/// Writes the image of these binaries, one for each architecture, as a layout; returns its digest.
pub(crate) fn pack(binaries: &[PathBuf], certificates: &[u8], folder: &Path) -> Result<String> {
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    for path in binaries {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let architecture = static_architecture(&bytes).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))?;
        if manifests.iter().any(|manifest: &Value| manifest["platform"]["architecture"] == architecture) {
            bail!("{} is a second binary for {architecture}", path.display());
        }
        manifests.push(layout.add_image(architecture, &bytes, certificates)?);
    }
    layout.write(folder, &manifests)
}

/// Builds the binary for x86-64, without a toolchain that is not there.
pub(crate) fn build(root: &Path, target: &Path, flags: &[String]) -> Result<PathBuf> {
    let libraries = shell::read(shell::command(root, "rustc", &["--print", "target-libdir", "--target", MUSL]))?;
    let triple = if Path::new(libraries.trim()).is_dir() { MUSL } else { GNU };
    let mut command = shell::command(root, "cargo", &["build", "--release", "--locked", "-p", BINARY, "--target", triple]);
    let mut flags = flags.to_vec();
    if triple == GNU {
        flags.push(STATIC.to_owned());
    }
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags.join(" "));
    }
    shell::run(command)?;
    Ok(target.join(triple).join("release").join(BINARY))
}

/// The architecture of a static binary in OCI's words; the error is a sentence with the remedy.
fn static_architecture(file: &[u8]) -> Result<&'static str, String> {
    let elf = elf::read(file)?;
    let architecture = match elf.machine {
        Elf::X86_64 => "amd64",
        Elf::AARCH64 => "arm64",
        other => return Err(format!("it is for a machine {other} that EKS does not have: build for x86_64 or aarch64")),
    };
    if elf.linking == Linking::Dynamic {
        return Err("it is linked dynamically, and the image has no libraries: build it for a musl target, or with \
                    RUSTFLAGS='-C target-feature=+crt-static'"
            .to_owned());
    }
    Ok(architecture)
}

/// The blobs of a layout, each named after its digest.
#[derive(Default)]
struct Layout {
    blobs: Vec<(String, Vec<u8>)>,
}

impl Layout {
    /// Adds a blob; returns its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest_of(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.blobs.push((digest, bytes));
        descriptor
    }

    /// Adds the image of one architecture; returns the descriptor of its manifest.
    fn add_image(&mut self, architecture: &str, binary: &[u8], certificates: &[u8]) -> Result<Value> {
        let files = archive(binary, certificates)?;
        let uncompressed = digest_of(&files);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&files)?;
        let layer = self.add("application/vnd.oci.image.layer.v1.tar+gzip", encoder.finish()?);
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": [format!("/{BINARY}")],
                "Env": [format!("SSL_CERT_FILE=/{CERTIFICATES}")],
                "ExposedPorts": {"8080/tcp": {}},
                "Labels": {"org.opencontainers.image.title": BINARY, "org.opencontainers.image.version": env!("CARGO_PKG_VERSION")},
            },
            "rootfs": {"type": "layers", "diff_ids": [uncompressed]},
        });
        let config = self.add("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]});
        let mut descriptor = self.add(media_type, manifest.to_string().into_bytes());
        descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        Ok(descriptor)
    }

    /// Writes the layout; returns the digest of the image: of the only manifest, or of the index of several.
    fn write(mut self, folder: &Path, manifests: &[Value]) -> Result<String> {
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = |manifests: &[Value]| json!({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests});
        let image = match manifests {
            [one] => one.clone(),
            several => self.add(media_type, index(several).to_string().into_bytes()),
        };
        if folder.exists() {
            if !folder.join("oci-layout").is_file() {
                bail!("{} exists and is no OCI layout: name another folder by --output", folder.display());
            }
            std::fs::remove_dir_all(folder)?;
        }
        let blobs = folder.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).with_context(|| format!("{} cannot be made", blobs.display()))?;
        for (digest, bytes) in &self.blobs {
            let name = digest.trim_start_matches("sha256:");
            std::fs::write(blobs.join(name), bytes).with_context(|| format!("blob {name} cannot be written"))?;
        }
        std::fs::write(folder.join("index.json"), index(std::slice::from_ref(&image)).to_string())?;
        std::fs::write(folder.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        Ok(image["digest"].as_str().unwrap_or_default().to_owned())
    }
}

fn digest_of(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The image's files, owned by root and older than everything.
fn archive(binary: &[u8], certificates: &[u8]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let folders = ["etc/", "etc/ssl/", "etc/ssl/certs/"].map(|path| (path, &[][..], 0o755, tar::EntryType::Directory));
    let files = [(CERTIFICATES, certificates, 0o644, tar::EntryType::Regular), (BINARY, binary, 0o755, tar::EntryType::Regular)];
    for (path, bytes, mode, kind) in folders.into_iter().chain(files) {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, path, bytes)?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::elf;
    use std::collections::BTreeMap;
    use std::io::Read;

    #[test]
    fn only_a_static_binary_for_an_architecture_of_eks_is_packed() {
        assert_eq!(static_architecture(&elf(62, 1)), Ok("amd64"));
        assert_eq!(static_architecture(&elf(183, 2)), Ok("arm64"));
        for (bytes, expected) in [
            (elf(62, 3), "dynamically"),
            (elf(243, 1), "machine 243"),
            (b"#!/bin/sh".to_vec(), "no binary"),
            (elf(62, 1)[..66].to_vec(), "ends early"),
        ] {
            let error = static_architecture(&bytes).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The blob that a descriptor names, after a check of its size and digest.
    fn blob(folder: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().expect("it has a digest");
        let bytes = std::fs::read(folder.join("blobs").join(digest.replace(':', "/"))).expect("the blob exists");
        assert_eq!((digest_of(&bytes), descriptor["size"].as_u64()), (digest.to_owned(), Some(bytes.len() as u64)));
        bytes
    }

    fn json_blob(folder: &Path, descriptor: &Value) -> Value {
        serde_json::from_slice(&blob(folder, descriptor)).expect("it is JSON")
    }

    /// Content and mode of each file of a layer.
    fn files(layer: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(layer);
        let entries = archive.entries().expect("it is an archive").map(|entry| {
            let mut entry = entry.expect("it is an entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("it can be read");
            assert_eq!((entry.header().uid().expect("a number"), entry.header().mtime().expect("a number")), (0, 0));
            (entry.path().expect("a path").display().to_string(), (entry.header().mode().expect("a mode"), bytes))
        });
        entries.collect()
    }

    fn write(folder: &Path, architectures: &[&str]) -> String {
        let mut layout = Layout::default();
        let manifests: Vec<Value> =
            architectures.iter().map(|name| layout.add_image(name, b"binary", b"roots").expect("it is packed")).collect();
        layout.write(folder, &manifests).expect("it is written")
    }

    #[test]
    fn a_layout_has_every_blob_under_its_digest_and_is_reproducible() {
        let folder = std::env::temp_dir().join(format!("whittle-image-{}", std::process::id()));
        let digest = write(&folder, &["amd64"]);
        assert_eq!(write(&folder, &["amd64"]), digest, "an older layout is replaced by an equal one");
        let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).expect("it exists")).expect("it is JSON");
        assert_eq!(index["manifests"][0]["digest"], digest.as_str());
        let manifest = json_blob(&folder, &index["manifests"][0]);
        let config = json_blob(&folder, &manifest["config"]);
        assert_eq!((&config["config"]["User"], &config["architecture"]), (&json!("65532:65532"), &json!("amd64")));
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(blob(&folder, &manifest["layers"][0]).as_slice()).read_to_end(&mut layer).expect("it is gzip");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest_of(&layer).as_str());
        let files = files(&layer);
        assert_eq!(files[BINARY], (0o755, b"binary".to_vec()));
        assert_eq!(files[CERTIFICATES], (0o644, b"roots".to_vec()));

        let both = write(&folder, &["amd64", "arm64"]);
        let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).expect("it exists")).expect("it is JSON");
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1), "a layout holds one image");
        let images = json_blob(&folder, &index["manifests"][0]);
        assert_eq!(
            (index["manifests"][0]["digest"].as_str(), &images["manifests"][1]["platform"]["architecture"]),
            (Some(both.as_str()), &json!("arm64"))
        );
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_folder_with_other_contents_is_not_removed() {
        let folder = std::env::temp_dir().join(format!("whittle-no-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        std::fs::write(folder.join("kept"), "x").expect("it can be written");
        let error = Layout::default().write(&folder, &[json!({})]).expect_err("it is no layout");
        assert!(error.to_string().contains("--output") && folder.join("kept").exists(), "{error}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
