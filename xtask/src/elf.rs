//! What a binary says about itself: its machine, whether it is linked dynamically, and which glibc it needs.

/// What an ELF file for 64-bit Linux says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    pub(crate) machine: u16,
    pub(crate) linking: Linking,
    /// The newest version of glibc that a symbol is taken from.
    pub(crate) glibc: Option<(u32, u32)>,
}

/// How a binary gets its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linking {
    /// It names a dynamic loader.
    Dynamic,
    /// It has them.
    Static,
}

impl Linking {
    /// For sentences: linked how.
    pub(crate) const fn adverb(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamically",
            Self::Static => "statically",
        }
    }
}

impl Elf {
    pub(crate) const X86_64: u16 = 62;
    pub(crate) const AARCH64: u16 = 183;
}

/// Reads the headers; the error is a sentence.
pub(crate) fn read(file: &[u8]) -> Result<Elf, String> {
    const INTERPRETER: u32 = 3;
    const NEEDED_VERSIONS: u32 = 0x6fff_fffe;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Err("it is no binary for 64-bit Linux".to_owned());
    }
    let programs = Table { at: word(file, 32)?, size: half(file, 54)?, count: half(file, 56)? };
    let sections = Table { at: word(file, 40)?, size: half(file, 58)?, count: half(file, 60)? };
    let mut linking = Linking::Static;
    for at in programs.rows() {
        if word(file, at)? == INTERPRETER {
            linking = Linking::Dynamic;
        }
    }
    let mut glibc = None;
    for at in sections.rows() {
        if word(file, at + 4)? == NEEDED_VERSIONS {
            let strings = sections.row(word(file, at + 40)?);
            glibc = glibc.max(newest(file, word(file, at + 24)? as usize, word(file, strings + 24)? as usize)?);
        }
    }
    Ok(Elf { machine: half(file, 18)?, linking, glibc })
}

/// A table of headers. The upper halves of offsets are zero in every file that fits into memory here.
struct Table {
    at: u32,
    size: u16,
    count: u16,
}

impl Table {
    fn row(&self, number: u32) -> usize {
        self.at as usize + usize::from(self.size) * number as usize
    }

    fn rows(&self) -> impl Iterator<Item = usize> {
        (0..u32::from(self.count)).map(|number| self.row(number))
    }
}

/// The newest version `GLIBC_x.y` in a section of needed versions: a list of libraries with a list of versions each.
fn newest(file: &[u8], section: usize, strings: usize) -> Result<Option<(u32, u32)>, String> {
    let (mut newest, mut library) = (None, section);
    loop {
        let mut version = library + word(file, library + 8)? as usize;
        for _ in 0..half(file, library + 2)? {
            newest = newest.max(glibc_version(string(file, strings + word(file, version + 8)? as usize)));
            version += word(file, version + 12)? as usize;
        }
        match word(file, library + 12)? {
            0 => return Ok(newest),
            next => library += next as usize,
        }
    }
}

/// `(2, 34)` for `GLIBC_2.34`.
fn glibc_version(name: &[u8]) -> Option<(u32, u32)> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let mut numbers = rest.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn string(file: &[u8], at: usize) -> &[u8] {
    file.get(at..).and_then(|rest| rest.split(|byte| *byte == 0).next()).unwrap_or_default()
}

fn half(file: &[u8], at: usize) -> Result<u16, String> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn word(file: &[u8], at: usize) -> Result<u32, String> {
    bytes(file, at).map(u32::from_le_bytes)
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], String> {
    let found = file.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().ok_or_else(|| "it ends early".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF file with one program header of this type and no sections.
    pub(crate) fn elf(machine: u16, header: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        bytes[64..68].copy_from_slice(&header.to_le_bytes());
        bytes
    }

    /// The same with a section of versions that are needed of one library.
    pub(crate) fn elf_needing(machine: u16, versions: &[&str]) -> Vec<u8> {
        let mut file = elf(machine, 3);
        let headers = file.len();
        let (section, strings) = (headers + 2 * 64, headers + 2 * 64 + 16 + 16 * versions.len());
        file[40..44].copy_from_slice(&u32::try_from(headers).expect("small").to_le_bytes());
        (file[58], file[60]) = (64, 2);
        let mut put = |at: usize, value: usize| {
            file.resize(file.len().max(at + 4), 0);
            file[at..at + 4].copy_from_slice(&u32::try_from(value).expect("small").to_le_bytes());
        };
        put(headers + 4, 0x6fff_fffe);
        put(headers + 24, section);
        put(headers + 40, 1);
        put(headers + 64 + 24, strings);
        put(headers + 2 * 64 - 4, 0);
        put(section, 1 + (versions.len() << 16));
        put(section + 8, 16);
        put(section + 12, 0);
        let mut name = 0;
        for (index, version) in versions.iter().enumerate() {
            put(section + 16 + 16 * index + 8, name);
            put(section + 16 + 16 * index + 12, 16);
            name += version.len() + 1;
        }
        file.resize(strings, 0);
        for version in versions {
            file.extend(version.bytes().chain([0]));
        }
        file
    }

    #[test]
    fn a_binary_tells_its_machine_and_its_glibc() {
        assert_eq!(read(&elf(62, 1)), Ok(Elf { machine: Elf::X86_64, linking: Linking::Static, glibc: None }));
        let needing = elf_needing(183, &["GLIBC_2.4", "GCC_3.0", "GLIBC_2.34", "GLIBC_2.28"]);
        assert_eq!(read(&needing), Ok(Elf { machine: Elf::AARCH64, linking: Linking::Dynamic, glibc: Some((2, 34)) }));
        assert_eq!(glibc_version(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc_version(b"GLIBC_PRIVATE"), None);
    }

    #[test]
    fn this_program_is_read() {
        let own = std::fs::read(std::env::current_exe().expect("it has a path")).expect("it can be read");
        let elf = read(&own).expect("it is a binary");
        assert!(elf.linking == Linking::Dynamic && elf.glibc.is_some_and(|version| (2, 0) < version && version < (3, 0)), "{elf:?}");
    }

    #[test]
    fn no_cut_of_a_binary_is_more_than_an_error() {
        let whole = elf_needing(62, &["GLIBC_2.17"]);
        for length in 0..whole.len() - 12 {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert!(read(b"#!/bin/sh").is_err_and(|reason| reason.contains("no binary")));
    }
}
