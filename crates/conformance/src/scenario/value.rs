//! Values of arguments.

mod reader;

use self::reader::Reader;
use crate::error::Problem;

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i128),
    Float(f64),
    Text(String),
    /// An image file, and the number of its bytes if not all.
    Image(String, Option<usize>),
    /// The number of bytes of an image with its final zero.
    ImageSize(String),
    /// A variable, with fields and indices, and an offset for addresses.
    Name(String),
    Offset(String, i64),
    /// An output of the call.
    Out(Box<Out>),
    List(Vec<Value>),
    Record(Vec<(String, Value)>),
    /// Values for a kernel, each with its type.
    Parameters(Vec<(String, Value)>),
    HostFunction(String),
    /// A stream callback, which logs its name and its status argument.
    Callback(String),
    SleepFunction(u64),
}

/// `&name:type[count]=value`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Out {
    pub(crate) name: String,
    pub(crate) is_recorded: bool,
    pub(crate) of: Option<String>,
    pub(crate) count: Option<usize>,
    pub(crate) initial: Vec<Value>,
}

/// Reads values that blanks or commas separate.
pub(super) fn list(text: &str) -> Result<Vec<Value>, Problem> {
    let mut reader = Reader { rest: text };
    let values = reader.until("")?;
    Ok(values)
}
