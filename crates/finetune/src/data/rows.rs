//! The rows of a Parquet file as JSON lines. Reads only columns that examples can have.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::parallel::{LineSource, Text};
use super::{DataError, JsonlLimits};
use crate::digest::FileDigest;
use crate::tokenizer::caught;

/// The columns that forms of examples and preferences have.
const COLUMNS: [&str; 13] = [
    "text",
    "prompt",
    "completion",
    "messages",
    "tools",
    "conversations",
    "system",
    "instruction",
    "input",
    "output",
    "history",
    "chosen",
    "rejected",
];

/// A Parquet file that is read row by row.
pub(super) struct Rows<'a> {
    rows: RowIter<'static>,
    path: &'a Path,
    limits: JsonlLimits,
    /// The size of the file.
    bytes: usize,
    /// Rows of the file.
    all: usize,
    /// Rows read so far.
    number: usize,
}

impl<'a> Rows<'a> {
    /// Reads `file`, which is at `path`, within `limits`.
    pub(super) fn new(path: &'a Path, file: File, limits: JsonlLimits) -> Result<Self, DataError> {
        let failed = |reason: String| DataError::Parquet { path: path.to_owned(), reason };
        let bytes = file.metadata().map_or(0, |file| file.len()) as usize;
        let opened = guarded(|| {
            let reader = SerializedFileReader::new(file)?;
            let metadata = reader.metadata().file_metadata();
            let (all, columns) = (metadata.num_rows(), projected(metadata.schema()));
            let rows = columns
                .map(|columns| RowIter::from_file_into(Box::new(reader)).project(Some(columns)));
            Ok((all, rows))
        });
        let (all, rows) = opened.map_err(failed)?;
        let rows = rows.map_err(failed)?.map_err(|error| failed(error.to_string()))?;
        Ok(Self { rows, path, limits, bytes, all: all.max(0) as usize, number: 0 })
    }

    /// Appends the next row as JSON. Returns false after the last.
    fn next(&mut self, text: &mut Vec<u8>) -> Result<bool, DataError> {
        let (path, line) = (|| self.path.to_owned(), self.number + 1);
        let failed = |reason| DataError::Parquet { path: path(), reason };
        let row = guarded(|| self.rows.next().transpose()).map_err(failed)?;
        let Some(row) = row else { return Ok(false) };
        self.number = line;
        if line > self.limits.lines {
            let (limit, what) = (self.limits.lines, "lines");
            return Err(DataError::TooLarge { path: path(), line, limit, what });
        }
        let json = row.to_json_value().to_string();
        let limit = self.limits.line;
        if json.len() > limit {
            return Err(DataError::LongLine { path: path(), line, limit });
        }
        text.extend_from_slice(json.as_bytes());
        Ok(true)
    }
}

impl LineSource for Rows<'_> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn chunk(&mut self, text: &mut Text) -> bool {
        let more = text.fill(|bytes| Ok(self.next(bytes)?.then_some(self.number)));
        let part = self.number as f64 / self.all.max(1) as f64;
        text.done = (self.bytes as f64 * part.min(1.0)) as usize;
        more
    }

    fn digest(self: Box<Self>) -> FileDigest {
        FileDigest::Unread(self.path.to_owned())
    }
}

/// Calls the reader. A panic becomes an error with its message.
fn guarded<T>(call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    match caught(call) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("the reader failed: {panic}")),
    }
}

/// Returns the columns that are read, or why there are none.
fn projected(schema: &Type) -> Result<Type, String> {
    let all = schema.get_fields();
    let known = all.iter().filter(|column| COLUMNS.contains(&column.name()));
    let known: Vec<Arc<Type>> = known.cloned().collect();
    if known.is_empty() {
        let names: Vec<&str> = all.iter().map(|column| column.name()).collect();
        return Err(format!("its columns are {}; none belongs to an example", names.join(", ")));
    }
    if let Some(column) = known.iter().find(|column| has_binary(column)) {
        return Err(format!("column `{}` has bytes that are not of a string type", column.name()));
    }
    let group = Type::group_type_builder(schema.name()).with_fields(known).build();
    group.map_err(|error| error.to_string())
}

/// Whether a column has bytes that are not of a string type.
fn has_binary(column: &Type) -> bool {
    if column.is_group() {
        return column.get_fields().iter().any(|field| has_binary(field));
    }
    let text = [ConvertedType::UTF8, ConvertedType::ENUM, ConvertedType::JSON];
    let bytes = [Physical::BYTE_ARRAY, Physical::FIXED_LEN_BYTE_ARRAY];
    bytes.contains(&column.get_physical_type())
        && !text.contains(&column.get_basic_info().converted_type())
        && column.get_basic_info().converted_type() != ConvertedType::DECIMAL
}
