//! Zip archives that depend on nothing but their contents: fixed times, modes and order.

use anyhow::{Context, Result};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::Write;

/// Version 2.0, which knows deflate.
const VERSION: u16 = 20;
/// Made on Unix, so that the attributes are a mode.
const UNIX: u16 = 3 << 8;
const DEFLATED: u16 = 8;
/// The earliest date that there is: 1 January 1980.
const DATE: u16 = (1 << 5) | 1;
const REGULAR: u32 = 0o100_000;

/// An archive with one file.
pub(super) fn of_one(name: &str, mode: u32, contents: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents)?;
    let compressed = encoder.finish()?;
    let mut crc = Crc::new();
    crc.update(contents);

    // What the header before the file and the one in the directory have in common.
    let mut common = Vec::new();
    for half in [VERSION, 0, DEFLATED, 0, DATE] {
        common.extend(half.to_le_bytes());
    }
    for word in [crc.sum(), small(compressed.len())?, small(contents.len())?] {
        common.extend(word.to_le_bytes());
    }
    common.extend(u16::try_from(name.len())?.to_le_bytes());
    common.extend(0_u16.to_le_bytes());

    let mut archive = b"PK\x03\x04".to_vec();
    archive.extend(&common);
    archive.extend(name.as_bytes());
    archive.extend(&compressed);

    let start = archive.len();
    archive.extend(b"PK\x01\x02");
    archive.extend((UNIX | VERSION).to_le_bytes());
    archive.extend(&common);
    for half in [0_u16; 3] {
        archive.extend(half.to_le_bytes());
    }
    archive.extend(((REGULAR | mode) << 16).to_le_bytes());
    archive.extend(0_u32.to_le_bytes());
    archive.extend(name.as_bytes());
    let size = archive.len() - start;

    archive.extend(b"PK\x05\x06");
    for half in [0_u16, 0, 1, 1] {
        archive.extend(half.to_le_bytes());
    }
    for word in [small(size)?, small(start)?] {
        archive.extend(word.to_le_bytes());
    }
    archive.extend(0_u16.to_le_bytes());
    Ok(archive)
}

fn small(length: usize) -> Result<u32> {
    u32::try_from(length).context("a file of 4 GiB does not fit into this kind of archive")
}

#[cfg(test)]
mod tests {
    use super::of_one;
    use crate::shell;

    /// Reads the archive with another implementation.
    const READ: &str = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; \
        print([(i.filename, oct(i.external_attr >> 16), i.create_system, i.date_time, z.read(i) == b'binary' * 1000) for i in z.infolist()])";

    #[test]
    fn another_program_reads_what_was_packed() {
        let contents = b"binary".repeat(1000);
        let archive = of_one("bootstrap", 0o755, &contents).expect("it is packed");
        assert_eq!(of_one("bootstrap", 0o755, &contents).expect("it is packed"), archive, "equal contents, equal bytes");
        assert!(archive.len() < contents.len() / 10);
        let path = std::env::temp_dir().join(format!("whittle-zip-{}.zip", std::process::id()));
        std::fs::write(&path, archive).expect("it can be written");
        let read = shell::read(shell::command(&std::env::temp_dir(), "python3", &["-c", READ, &path.to_string_lossy()]));
        assert_eq!(read.expect("it is an archive").trim(), "[('bootstrap', '0o100755', 3, (1980, 1, 1, 0, 0, 0), True)]");
        std::fs::remove_file(&path).expect("it is ours");
    }
}
