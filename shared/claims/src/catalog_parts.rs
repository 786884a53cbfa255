//! The parts in which the region's catalog is stored.

/// Bytes per part. DynamoDB's limit is 400 KB per item, other attributes included.
const PART_MAX: usize = 360 * 1024;
/// How gzip streams begin, and how long what all streams of one encoder begin with is.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const HEADER: usize = 10;

/// The parts of a catalog: each of its gzip streams, and of a long one as many as fit into items. Spot prices are a stream of their own,
/// so that the parts of all else stay the same when they change. Together they are the catalog, whatever its bytes are. Pure.
#[must_use]
pub fn catalog_parts(blob: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), blob);
    while let Some(length) = first_stream(rest) {
        let (stream, after) = rest.split_at(length);
        parts.extend(stream.chunks(PART_MAX));
        rest = after;
    }
    parts.extend(rest.chunks(PART_MAX));
    parts
}

/// The length of the first stream, if another one begins behind it. Bytes within a stream that look like the beginning of one divide it,
/// each time in the same place.
fn first_stream(blob: &[u8]) -> Option<usize> {
    let header = blob.get(..HEADER).filter(|header| header.starts_with(&GZIP))?;
    blob.windows(HEADER).skip(1).position(|window| window == header).map(|before| before + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(content: u8, length: usize) -> Vec<u8> {
        let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
        header.into_iter().chain(std::iter::repeat_n(content, length)).collect()
    }

    #[track_caller]
    fn check(blob: &[u8], lengths: &[usize]) {
        let parts = catalog_parts(blob);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), lengths);
        assert_eq!(parts.concat(), blob, "nothing is lost");
    }

    #[test]
    fn each_stream_is_a_part_and_a_long_one_several() {
        check(&[], &[]);
        check(&[7; 20], &[20]);
        check(&stream(1, 50), &[60]);
        check(&[stream(1, 50), stream(2, 30)].concat(), &[60, 40]);
        check(&[stream(1, 0), stream(2, 0), stream(3, 5)].concat(), &[10, 10, 15]);
        check(&stream(1, PART_MAX), &[PART_MAX, 10]);
        check(&[stream(1, PART_MAX), stream(2, 1)].concat(), &[PART_MAX, 10, 11]);
        check(&vec![0; 2 * PART_MAX + 1], &[PART_MAX, PART_MAX, 1]);
        let header_alone = stream(1, 0);
        check(&header_alone[..5], &[5]);
    }

    #[test]
    fn the_first_part_does_not_depend_on_what_is_behind_it() {
        let one = [stream(1, 50), stream(2, 30)].concat();
        let other = [stream(1, 50), stream(3, 70)].concat();
        assert_eq!(catalog_parts(&one)[0], catalog_parts(&other)[0]);
        assert_ne!(catalog_parts(&one)[1], catalog_parts(&other)[1]);
    }
}
