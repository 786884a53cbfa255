//! How the JSON of a claim is kept in the table: compressed, because DynamoDB bills each KiB that is written and every 4 KiB that are read.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{self, Read as _, Write as _};

/// Shorter text stays text: compressed it takes as many units.
const COMPRESSED_FROM: usize = 512;
/// The longest text that is read. An item has 400 KB, and no claim of ours comes near that.
const TEXT_MAX: u64 = 4 * 1024 * 1024;

/// JSON at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    Text(String),
    /// With gzip, whose files every system can read.
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

fn compress(json: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(json.len() / 2), Compression::default());
    encoder.write_all(json.as_bytes())?;
    encoder.finish()
}

/// The JSON of compressed bytes.
///
/// # Errors
/// Bytes that are not gzip, that are cut off, or whose text is not UTF-8 or far longer than a claim.
pub fn text_at_rest(compressed: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    let read = GzDecoder::new(compressed).take(TEXT_MAX + 1).read_to_string(&mut text)?;
    let is_too_long = u64::try_from(read).map_or(true, |read| read > TEXT_MAX);
    if is_too_long { Err(io::Error::other(format!("its text has more than {TEXT_MAX} bytes"))) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        let AtRest::Compressed(whole) = AtRest::of("{\"a\":1}".repeat(100)) else { panic!("it is long") };
        for bytes in [&[][..], b"no gzip", &whole[..whole.len() - 9], &whole[1..]] {
            text_at_rest(bytes).unwrap_err();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[0xff; 100]).unwrap();
        text_at_rest(&encoder.finish().unwrap()).unwrap_err();
        let bomb = compress(&" ".repeat(usize::try_from(TEXT_MAX).unwrap() + 1)).unwrap();
        assert!(bomb.len() < 20_000);
        assert!(text_at_rest(&bomb).unwrap_err().to_string().contains("more than"), "a small item does not fill the memory");
    }
}
