//! The date that chat templates see, formatted as Python's `strftime` does in the locale C.
//!
//! The date is 26 July 2024, the default of Llama's templates without a clock. A fixed date gives
//! the same conversation the same tokens.

/// A format that cannot be written, with the directive that prevents it.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("`strftime_now` does not know the directive `{directive}` of the format `{format}`")]
pub(super) struct UnknownDirective {
    directive: String,
    format: String,
}

/// Writes the date by a format of `strftime`. A `-` after the percent sign removes leading zeros,
/// as in glibc.
pub(super) fn formatted(format: &str) -> Result<String, UnknownDirective> {
    let mut text = String::new();
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        text.push_str(&rest[..start]);
        let mut letters = rest[start + 1..].chars();
        let mut letter = letters.next();
        let is_unpadded = letter == Some('-');
        if is_unpadded {
            letter = letters.next();
        }
        let end = rest.len() - letters.as_str().len();
        let Some(value) = letter.and_then(value) else {
            let directive = rest[start..end].to_owned();
            return Err(UnknownDirective { directive, format: format.to_owned() });
        };
        text.push_str(if is_unpadded { without_zeros(value) } else { value });
        rest = &rest[end..];
    }
    text.push_str(rest);
    Ok(text)
}

/// Returns what a directive writes for midnight of 26 July 2024, without a time zone.
fn value(directive: char) -> Option<&'static str> {
    Some(match directive {
        'A' => "Friday",
        'a' => "Fri",
        'B' => "July",
        'b' | 'h' => "Jul",
        'C' => "20",
        'c' => "Fri Jul 26 00:00:00 2024",
        'D' | 'x' => "07/26/24",
        'd' | 'e' => "26",
        'F' => "2024-07-26",
        'f' => "000000",
        'G' | 'Y' => "2024",
        'g' | 'y' => "24",
        'H' | 'M' | 'S' => "00",
        'I' | 'l' => "12",
        'j' => "208",
        'k' => " 0",
        'm' => "07",
        'n' => "\n",
        'P' => "am",
        'p' => "AM",
        'R' => "00:00",
        'r' => "12:00:00 AM",
        'T' | 'X' => "00:00:00",
        't' => "\t",
        'U' => "29",
        'u' | 'w' => "5",
        'V' | 'W' => "30",
        'Z' | 'z' => "",
        '%' => "%",
        _ => return None,
    })
}

/// Removes the padding of a number; other text stays.
fn without_zeros(value: &str) -> &str {
    if value.trim_start().bytes().any(|byte| !byte.is_ascii_digit()) {
        return value;
    }
    match value.trim_start_matches(['0', ' ']) {
        "" if !value.is_empty() => "0",
        number => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_writes_what_python_writes() {
        // From `datetime.datetime(2024, 7, 26).strftime` of Python 3.11, in the locale C.
        let format = "%a %A %b %B %C %D %d %e %F %f %G %g %H %h %I %j %k %l %M %m %P %p %R %S %T \
                      %U %u %V %W %w %X %x %Y %y [%Z%z] %%";
        let expected = "Fri Friday Jul July 20 07/26/24 26 26 2024-07-26 000000 2024 24 00 Jul 12 \
                        208  0 12 00 07 am AM 00:00 00 00:00:00 29 5 30 30 5 00:00:00 07/26/24 \
                        2024 24 [] %";
        assert_eq!(formatted(format).unwrap(), expected);
        assert_eq!(formatted("%c|%r").unwrap(), "Fri Jul 26 00:00:00 2024|12:00:00 AM");
        assert_eq!(formatted("%-d %-m %-H %-I %-j %-y %-B").unwrap(), "26 7 0 12 208 24 July");
        assert_eq!(formatted("é 100 %n%t").unwrap(), "é 100 \n\t");
    }

    #[test]
    fn unknown_directives_are_named() {
        for (format, directive) in [("%d %Q", "%Q"), ("%-é", "%-é"), ("100%", "%"), ("%-", "%-")]
        {
            let error = formatted(format).unwrap_err();
            assert_eq!((&*error.directive, &*error.format), (directive, format));
            assert!(error.to_string().contains(&format!("`{directive}`")), "{error}");
        }
    }
}
