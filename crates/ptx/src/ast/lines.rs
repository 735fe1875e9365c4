//! The source lines that PTX was compiled from.

/// The line table of `.file` and `.loc`: maps lines of the PTX text to lines of source files. Empty
/// unless the text was compiled with line information (`nvcc -lineinfo`).
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
    /// Names of the files, with their numbers in the text.
    files: Vec<(u32, String)>,
    /// The first PTX line of each row, with source file and line, in ascending order. Source line 0
    /// ends the previous row.
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
    /// Returns the source line of a line of the PTX text, if known.
    pub fn source(&self, ptx_line: u32) -> Option<SourcePosition> {
        let next = self.rows.partition_point(|(start, ..)| *start <= ptx_line);
        let (_, file, line) = *self.rows.get(next.checked_sub(1)?)?;
        let (_, name) = self.files.iter().find(|(number, _)| *number == file)?;
        (line != 0).then(|| SourcePosition { file: name.clone(), line })
    }

    pub(crate) fn add_file(&mut self, number: u32, name: &str) {
        self.files.push((number, name.to_owned()));
    }

    /// Starts a row: from `ptx_line` on, the text comes from this source line.
    pub(crate) fn begin(&mut self, ptx_line: u32, file: u32, line: u32) {
        self.rows.push((ptx_line, file, line));
    }

    /// Ends a row: from `ptx_line` on, the source is unknown.
    pub(crate) fn end(&mut self, ptx_line: u32) {
        if self.rows.last().is_some_and(|(.., line)| *line != 0) {
            self.rows.push((ptx_line, 0, 0));
        }
    }
}

/// All tables compare as equal: like [`SourceLine`]s, they are not part of the meaning of a module.
///
/// [`SourceLine`]: super::SourceLine
impl PartialEq for LineTable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
