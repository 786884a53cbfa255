//! How the JSON of a claim is kept in the table: compressed, because DynamoDB bills each KiB that is written and every 4 KiB that are read.
//!
//! Claims differ little from each other. What they have in common is not stored with each, but in a dictionary, which is part of this
//! program: it begins before the text, so that the text can refer to it (RFC 1950, FDICT). A stream names its dictionary by a checksum.

use crate::Claim;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::ZlibEncoder;
use flate2::{Compress, Compression, Decompress, FlushDecompress};
use std::io::{self, Read, Write as _};

/// Shorter text stays text: compressed it takes as many units.
const COMPRESSED_FROM: usize = 512;
/// The longest text that is read. An item has 400 KB, and no claim of ours comes near that.
const TEXT_MAX: u64 = 4 * 1024 * 1024;
/// Names of instance types, and claims without what is their own. Not a byte of it may change once claims were written with it: what it
/// lacks goes into a second dictionary.
const DICTIONARY: &[u8] = include_bytes!("at_rest/dictionary-1.txt");
/// Bytes before the text of a stream with a dictionary: two with the format and the flag FDICT, and the dictionary's checksum.
const HEADER: usize = 6;
/// How every gzip file begins: the form of claims before there was a dictionary.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// JSON at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    Text(String),
    /// A zlib stream with our dictionary.
    Compressed(Vec<u8>),
}

impl AtRest {
    /// The smaller form of JSON.
    #[must_use]
    pub fn of(json: String) -> Self {
        if json.len() < COMPRESSED_FROM {
            return Self::Text(json);
        }
        match compress(&json) {
            Ok(compressed) if compressed.len() < json.len() => Self::Compressed(compressed),
            _ => Self::Text(json),
        }
    }

    /// Bytes of the value in an item.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Compressed(bytes) => bytes.len(),
        }
    }
}

/// The most bytes of a new claim at rest. An item of DynamoDB has 400 KB, keys and all: the rest is for what is added to the claim later.
const NEW_CLAIM_MAX: usize = 320 * 1024;
/// The longest text of a new claim, however well it can be compressed: it grows, and a text that is too long is not read again.
const NEW_TEXT_MAX: usize = 2 * 1024 * 1024;

/// The bytes of a new claim if it is too large for the table; `None` if it can be stored.
#[must_use]
pub fn oversize(claim: &Claim) -> Option<usize> {
    let json = serde_json::to_string(claim).ok()?;
    let length = json.len();
    if length <= NEW_CLAIM_MAX {
        return None; // neither form is longer than the text
    }
    let size = if length <= NEW_TEXT_MAX { AtRest::of(json).size() } else { length };
    Some(size).filter(|size| NEW_CLAIM_MAX < *size)
}

fn compress(json: &str) -> io::Result<Vec<u8>> {
    let mut stream = Compress::new(Compression::best(), true);
    stream.set_dictionary(DICTIONARY).map_err(io::Error::other)?;
    let mut encoder = ZlibEncoder::new_with_compress(Vec::with_capacity(json.len() / 8), stream);
    encoder.write_all(json.as_bytes())?;
    encoder.finish()
}

/// The JSON of compressed bytes.
///
/// # Errors
/// Bytes that are not compressed so, that are cut off, that need a dictionary which this release has not, or whose text is not UTF-8 or far
/// longer than a claim.
pub fn text_at_rest(compressed: &[u8]) -> io::Result<String> {
    if compressed.starts_with(&GZIP) {
        return bounded_text(GzDecoder::new(compressed));
    }
    let Some((header, rest)) = compressed.split_at_checked(HEADER) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    let mut stream = Decompress::new(true);
    // The header ends with the question for the dictionary; a stream that does not ask is none of ours.
    match stream.decompress(header, &mut [], FlushDecompress::None) {
        Err(asked) if asked.needs_dictionary().is_some() => {
            stream.set_dictionary(DICTIONARY).map_err(|_| unknown(asked.needs_dictionary()))?
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(io::Error::other("it is no stream with a dictionary")),
    };
    bounded_text(ZlibDecoder::new_with_decompress(rest, stream))
}

fn unknown(dictionary: Option<u32>) -> io::Error {
    let checksum = dictionary.unwrap_or_default();
    io::Error::other(format!("it is compressed with dictionary {checksum:08x}, which this release has not; deploy the newer release"))
}

fn bounded_text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let read = from.take(TEXT_MAX + 1).read_to_string(&mut text)?;
    let is_too_long = u64::try_from(read).map_or(true, |read| read > TEXT_MAX);
    if is_too_long { Err(io::Error::other(format!("its text has more than {TEXT_MAX} bytes"))) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_never_longer() {
        for json in ["{}".to_owned(), "x".repeat(511), "ü".repeat(300), (0..4000).map(|n| format!("{n} ")).collect()] {
            let stored = AtRest::of(json.clone());
            assert!(stored.size() <= json.len());
            match stored {
                AtRest::Text(text) => assert_eq!(text, json),
                AtRest::Compressed(bytes) => assert_eq!(text_at_rest(&bytes).unwrap(), json),
            }
        }
        assert_eq!(AtRest::of("{}".to_owned()), AtRest::Text("{}".to_owned()), "people can read it");
        assert!(matches!(AtRest::of("{\"a\":1}".repeat(100)), AtRest::Compressed(bytes) if bytes.len() < 60));
    }

    /// A claim with so many annotations, whose values are unlike each other or all alike.
    fn annotated(count: u64, alike: bool) -> Claim {
        let mut claim = crate::fixtures::planned("a", crate::fixtures::default_spec());
        let mut state = 1_u64;
        for n in 0..count {
            let mut value = String::new();
            for _ in 0..8 {
                // A generator of linear congruence: what compresses badly.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                value.push_str(&format!("{:x}", if alike { 7 } else { state }));
            }
            claim.spec.annotations.insert(format!("note-{n}"), value);
        }
        claim
    }

    #[test]
    fn a_claim_is_too_large_by_what_is_stored_of_it_or_by_what_is_read_of_it() {
        assert_eq!(oversize(&annotated(100, false)), None);
        assert_eq!(oversize(&annotated(20_000, true)), None, "its text is longer than an item, and compressed far shorter");
        let stored = oversize(&annotated(8_000, false)).unwrap();
        assert!(NEW_CLAIM_MAX < stored && stored < 8_000 * 128, "it is the size of what would be stored: {stored}");
        assert!(oversize(&annotated(100_000, true)).is_some_and(|size| NEW_TEXT_MAX < size), "its text would not be read again");
    }

    #[test]
    fn what_earlier_releases_wrote_is_read() {
        let json = "{\"a\":1}".repeat(100);
        assert_eq!(text_at_rest(&gzip(json.as_bytes())).unwrap(), json);
    }

    #[test]
    fn the_dictionary_is_that_of_all_releases() {
        let AtRest::Compressed(bytes) = AtRest::of("{\"a\":1}".repeat(100)) else { panic!("it is long") };
        // The header of zlib names it. Where this fails, the file has changed: claims in tables could not be read any more.
        assert_eq!(bytes[..HEADER], [0x78, 0xf9, 0x7e, 0x0d, 0x8f, 0x4f]);
        let mut other = bytes;
        other[HEADER - 1] ^= 1;
        let error = text_at_rest(&other).unwrap_err().to_string();
        assert!(error.contains("dictionary 7e0d8f4e") && error.contains("deploy the newer release"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        let AtRest::Compressed(whole) = AtRest::of("{\"a\":1}".repeat(100)) else { panic!("it is long") };
        let mut without = ZlibEncoder::new(Vec::new(), Compression::fast());
        without.write_all(b"{}").unwrap();
        let without = without.finish().unwrap();
        let cut_gzip = &gzip(&[b'a'; 100])[..20];
        for bytes in [&[][..], b"no stream", &GZIP, cut_gzip, &without, &whole[..HEADER], &whole[..whole.len() - 5], &whole[1..]] {
            text_at_rest(bytes).unwrap_err();
        }
        text_at_rest(&gzip(&[0xff; 100])).unwrap_err();
        let spaces = " ".repeat(usize::try_from(TEXT_MAX).unwrap() + 1);
        for bomb in [compress(&spaces).unwrap(), gzip(spaces.as_bytes())] {
            assert!(bomb.len() < 100_000);
            assert!(text_at_rest(&bomb).unwrap_err().to_string().contains("more than"), "a small item does not fill the memory");
        }
    }
}
