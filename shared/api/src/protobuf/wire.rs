//! The wire format: fields of a message, each a number and a payload.

use super::Error;

/// The unread rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire<'de> {
    rest: &'de [u8],
}

/// The payload of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload<'de> {
    Number(u64),
    Bytes(&'de [u8]),
    /// A fixed-width number. No field that we read has one.
    Fixed,
}

/// Consecutive occurrences of one field, as repeated fields and maps are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'de> {
    pub(super) wire: Wire<'de>,
    pub(super) count: usize,
}

impl<'de> Wire<'de> {
    pub(super) const fn new(message: &'de [u8]) -> Self {
        Self { rest: message }
    }

    /// The unread bytes.
    pub(super) const fn bytes(&self) -> &'de [u8] {
        self.rest
    }

    /// What was read since then: `later` is the rest of the same message.
    pub(super) fn until(&self, later: &Self) -> &'de [u8] {
        &self.rest[..self.rest.len() - later.rest.len()]
    }

    /// The number and payload of the next field; `None` at the end of the message.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Payload<'de>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0).ok_or(Error::Malformed("a field number is out of range"))?;
        let payload = match tag & 7 {
            0 => Payload::Number(self.varint()?),
            1 => self.take(8).map(|_| Payload::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Payload::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Payload::Fixed)?,
            _ => return Err(Error::Malformed("a field has an unknown wire type")),
        };
        Ok(Some((number, payload)))
    }

    /// The rest of a run of which the last `next` has returned the first payload. `start` is the state before that.
    pub(super) fn run_since(&mut self, start: Self, number: u32) -> Result<Run<'de>, Error> {
        let mut count = 1;
        let mut ahead = *self;
        while let Some((next, _)) = ahead.next()? {
            if next != number {
                break;
            }
            count += 1;
            *self = ahead;
        }
        Ok(Run { wire: Self::new(start.until(self)), count })
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::Malformed("a field is longer than its message"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Most numbers are tags, lengths and flags: one byte.
    #[inline]
    fn varint(&mut self) -> Result<u64, Error> {
        match *self.rest {
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        // 64 bits in groups of seven: the tenth byte holds the last bit.
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Error::Malformed("a number is truncated or longer than 64 bits"))
    }
}
