//! Lines of the source that PTX was compiled from.

/// The table that `.file` and `.loc` make: which line of a source file each line of the PTX text
/// comes from. Empty unless the text was compiled with line information (`nvcc -lineinfo`).
///
/// ```
/// let text = "
/// .version 7.0
/// .target sm_80
/// .address_size 64
/// .visible .entry stop() {
///     .loc 1 7 3
///     trap;
///     ret;
/// }
/// .file 1 \"src/stop.cu\"";
/// let module = retrograph_ptx::parse(text)?;
/// let line = module.lines.source(8).unwrap();
/// assert_eq!(line.to_string(), "src/stop.cu:7");
/// assert_eq!(module.lines.source(5), None);
/// # Ok::<(), retrograph_ptx::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, Eq)]
pub struct LineTable {
    /// Names of the files by the numbers that the text gives them.
    files: Vec<(u32, String)>,
    /// Where a row begins in the PTX text, with file and line of the source; in ascending order.
    /// Line 0 ends the row before it.
    rows: Vec<(u32, u32, u32)>,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePosition {
    /// The name of the file, as the compiler wrote it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

impl std::fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl LineTable {
    /// The line of the source that a line of the PTX text comes from, if the text says so.
    pub fn source(&self, ptx_line: u32) -> Option<SourcePosition> {
        let next = self.rows.partition_point(|(start, ..)| *start <= ptx_line);
        let (_, file, line) = *self.rows.get(next.checked_sub(1)?)?;
        let (_, name) = self.files.iter().find(|(number, _)| *number == file)?;
        (line != 0).then(|| SourcePosition { file: name.clone(), line })
    }

    pub(crate) fn add_file(&mut self, number: u32, name: &str) {
        self.files.push((number, name.to_owned()));
    }

    /// From `ptx_line` on the text comes from this line of the source.
    pub(crate) fn begin(&mut self, ptx_line: u32, file: u32, line: u32) {
        self.rows.push((ptx_line, file, line));
    }

    /// From `ptx_line` on the source is unknown.
    pub(crate) fn end(&mut self, ptx_line: u32) {
        if self.rows.last().is_some_and(|(.., line)| *line != 0) {
            self.rows.push((ptx_line, 0, 0));
        }
    }
}

/// Tables are equal: they do not belong to what a module does, as [`SourceLine`]s do not.
///
/// [`SourceLine`]: super::SourceLine
impl PartialEq for LineTable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
