//! Reads the members of a document piece by piece: an array may have a million elements.

use super::json::{CopyError, JsonReader, Names};
use super::payload::PayloadError;

/// Takes the members of documents.
pub(super) trait TakesMembers {
    /// Who hears of the names in a value.
    type Names: Names;
    /// What stands for a member while its value is read.
    type Member: Copy;

    /// A member begins.
    fn begin(&mut self, name: &str) -> Result<BegunBy<Self>, PayloadError>;

    /// Where its value is copied to, from where it was left.
    fn copy(&mut self) -> (&mut Vec<u8>, &mut Self::Names);

    /// Reads the value anew that begins at this offset, since an object in it names a member twice.
    fn reread(&mut self, reader: &mut JsonReader<'_>, begun: BegunBy<Self>, start: usize) -> Result<(), PayloadError>;

    /// The value is copied.
    fn end(&mut self, member: Self::Member);
}

/// A member that has begun.
#[derive(Clone, Copy)]
pub(super) struct Begun<M, S> {
    /// What stands for it.
    pub member: M,
    /// The scope of its value.
    pub scope: S,
    /// Whether its numbers are copied as they are written.
    pub keeps_numbers: bool,
}

/// That of one who takes members.
pub(super) type BegunBy<T> = Begun<<T as TakesMembers>::Member, <<T as TakesMembers>::Names as Names>::Scope>;

/// How far a document has been read.
pub(super) struct Members<M, S> {
    is_under_way: bool,
    /// The member whose array is being read, and where that begins.
    array: Option<(Begun<M, S>, usize)>,
    scratch: String,
}

impl<M, S> Default for Members<M, S> {
    fn default() -> Self {
        Self { is_under_way: false, array: None, scratch: String::new() }
    }
}

impl<M: Copy, S: Copy> Members<M, S> {
    /// Whether a document has begun and not ended.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Reads on, beginning with an object where no document is under way, to its end or, within an array that is a member's value, to the
    /// first element behind an offset. True at the end. After an error it must not be used again.
    pub fn read_some<T>(
        &mut self,
        reader: &mut JsonReader<'_>,
        taker: &mut T,
        until: usize,
    ) -> Result<bool, PayloadError>
    where
        T: TakesMembers<Member = M>,
        T::Names: Names<Scope = S>,
    {
        if !self.is_under_way {
            if !reader.take(b'{') {
                return Err(PayloadError::NotAnObject);
            }
            if reader.take(b'}') {
                return Ok(true);
            }
            self.is_under_way = true;
        }
        loop {
            let member = match self.array.take() {
                Some((begun, start)) => match elements(reader, taker, begun, (start, until))? {
                    true => begun.member,
                    false => {
                        self.array = Some((begun, start));
                        return Ok(false);
                    }
                },
                None => {
                    let begun = taker.begin(reader.string(&mut self.scratch)?)?;
                    if !reader.take(b':') {
                        reader.fail("expected `:`")?;
                    }
                    let start = reader.offset();
                    if !reader.take(b'[') {
                        copy_value(reader, taker, begun, (start, 2))?;
                    } else if reader.take(b']') {
                        taker.copy().0.extend_from_slice(b"[]");
                    } else {
                        taker.copy().0.push(b'[');
                        self.array = Some((begun, start));
                        continue;
                    }
                    begun.member
                }
            };
            taker.end(member);
            if reader.take(b'}') {
                self.is_under_way = false;
                return Ok(true);
            }
            if !reader.take(b',') {
                reader.fail("expected `,` or `}`")?;
            }
        }
    }
}

/// Copies elements of an array that is a member's value, up to its end; false where it stopped behind the offset.
fn elements<T: TakesMembers>(
    reader: &mut JsonReader<'_>,
    taker: &mut T,
    begun: BegunBy<T>,
    (start, until): (usize, usize),
) -> Result<bool, PayloadError> {
    while copy_value(reader, taker, begun, (start, 3))? {
        if reader.take(b']') {
            taker.copy().0.push(b']');
            break;
        }
        if !reader.take(b',') {
            reader.fail("expected `,` or `]`")?;
        }
        taker.copy().0.push(b',');
        if reader.offset() >= until {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies a member's value, or an element of it; false when the whole value was read anew instead.
fn copy_value<T: TakesMembers>(
    reader: &mut JsonReader<'_>,
    taker: &mut T,
    begun: BegunBy<T>,
    (start, depth): (usize, u32),
) -> Result<bool, PayloadError> {
    let (out, names) = taker.copy();
    reader.keep_numbers(begun.keeps_numbers);
    let copied = reader.copy_value(out, names, begun.scope, depth);
    reader.keep_numbers(false);
    match copied {
        Ok(()) => Ok(true),
        Err(CopyError::Json(error)) => Err(error.into()),
        Err(CopyError::NamesFull) => Err(PayloadError::NamesFull),
        Err(CopyError::Repeated) => taker.reread(reader, begun, start).map(|()| false),
    }
}
