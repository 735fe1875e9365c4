//! Functions of the driver that kernels call: `vprintf` and `__assertfail`.

use super::access::LaneFault;
use super::access::{Memories, read_element};
use super::fault::FaultKind;
use super::program::Access;

/// The maximum length of a string, in bytes.
const MAX_STRING_BYTES: usize = 1 << 12;

/// A lane's access to memory by generic addresses.
pub(super) struct LaneMemory<'m, 'a> {
    pub(super) memories: &'m Memories<'a>,
    pub(super) lane: usize,
}

impl LaneMemory<'_, '_> {
    fn read(&self, address: u64, bytes: u32) -> Result<u64, LaneFault> {
        let access = Access::generic(bytes);
        let from = self.memories.resolve(&access, self.lane, address);
        let from = from.map_err(|kind| (kind, self.lane as u32))?;
        // SAFETY: `resolve` proved the bytes.
        Ok(unsafe { read_element(from, bytes as usize, false) })
    }

    /// Reads a zero-terminated string.
    pub(super) fn string(&self, address: u64) -> Result<String, LaneFault> {
        let mut bytes = Vec::new();
        while bytes.len() < MAX_STRING_BYTES {
            match self.read(address.wrapping_add(bytes.len() as u64), 1)? as u8 {
                0 => break,
                byte => bytes.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Formats a text. The arguments are contiguous, each aligned to its size. Returns the text and
    /// the number of arguments.
    ///
    /// Source: "Formatted Output" in the CUDA C++ Programming Guide.
    pub(super) fn format(&self, format: u64, arguments: u64) -> Result<(String, u32), LaneFault> {
        let format = self.string(format)?;
        let mut arguments = Arguments { memory: self, next: arguments, count: 0 };
        let (mut text, mut rest) = (String::new(), format.as_str());
        while let Some((before, after)) = rest.split_once('%') {
            text.push_str(before);
            let (conversion, after) = Conversion::parse(after, &mut arguments)?;
            text.push_str(&conversion.apply(&mut arguments)?);
            rest = after;
        }
        text.push_str(rest);
        Ok((text, arguments.count))
    }
}

/// The remaining arguments.
struct Arguments<'m, 'n, 'a> {
    memory: &'n LaneMemory<'m, 'a>,
    next: u64,
    count: u32,
}

impl Arguments<'_, '_, '_> {
    fn take(&mut self, bytes: u32) -> Result<u64, LaneFault> {
        // An address that overflows is out of bounds.
        let bytes_before = u64::from(bytes) - 1;
        let address = self.next.wrapping_add(bytes_before) & !bytes_before;
        self.next = address.wrapping_add(u64::from(bytes));
        self.count += 1;
        self.memory.read(address, bytes)
    }
}

/// `%[flags][width][.precision][size]type`
#[derive(Debug, Default)]
struct Conversion {
    flags: String,
    width: usize,
    precision: Option<usize>,
    /// The bytes of an integer; below 4, the argument has 4 bytes.
    size: u32,
    kind: char,
}

impl Conversion {
    /// Parses a conversion after its `%`. Returns the text after it.
    fn parse<'t>(
        text: &'t str,
        arguments: &mut Arguments<'_, '_, '_>,
    ) -> Result<(Self, &'t str), LaneFault> {
        let mut made = Self::default();
        let rest = text.trim_start_matches(['-', '+', ' ', '#', '0']);
        made.flags = text[..text.len() - rest.len()].to_owned();
        let (width, mut rest) = number(rest, arguments)?;
        made.width = width.unwrap_or(0);
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = number(after, arguments)?;
            (made.precision, rest) = (Some(precision.unwrap_or(0)), after);
        }
        let after = rest.trim_start_matches(['h', 'l', 'L', 'j', 'z', 't']);
        made.size = match &rest[..rest.len() - after.len()] {
            "h" => 2,
            "hh" => 1,
            size if size.contains(['l', 'j', 'z', 't']) => 8,
            _ => 4,
        };
        made.kind = after.chars().next().unwrap_or('%');
        let rest = &after[made.kind.len_utf8().min(after.len())..];
        Ok((made, rest))
    }

    fn apply(&self, arguments: &mut Arguments<'_, '_, '_>) -> Result<String, LaneFault> {
        let unused = 64 - 8 * self.size;
        let mut integer = || {
            let value = arguments.take(self.size.max(4))?;
            Ok::<u64, LaneFault>(value << unused >> unused)
        };
        let body = match self.kind {
            '%' => return Ok("%".to_owned()),
            'd' | 'i' => {
                let value = (integer()? << unused).cast_signed() >> unused;
                self.signed(value < 0, self.digits(value.unsigned_abs().to_string()))
            }
            'u' => self.digits(integer()?.to_string()),
            'o' => self.digits(format!("{:o}", integer()?)),
            'x' | 'X' => {
                let value = integer()?;
                let prefix = if self.has('#') && value != 0 { "0x" } else { "" };
                self.cased(format!("{prefix}{}", self.digits(format!("{value:x}"))))
            }
            'c' => char::from(arguments.take(4)? as u8).to_string(),
            'p' => format!("{:#x}", arguments.take(8)?),
            's' => {
                let address = arguments.take(8)?;
                let text = arguments.memory.string(address)?;
                text.chars().take(self.precision.unwrap_or(MAX_STRING_BYTES)).collect()
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => {
                let value = f64::from_bits(arguments.take(8)?);
                let text = self.float(value.abs());
                self.cased(self.signed(value.is_sign_negative() && !value.is_nan(), text))
            }
            other => format!("%{other}"),
        };
        Ok(self.padded(body))
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// Pads digits with leading zeros to the precision.
    fn digits(&self, digits: String) -> String {
        let wanted = self.precision.unwrap_or(0);
        format!("{}{digits}", "0".repeat(wanted.saturating_sub(digits.len())))
    }

    fn signed(&self, is_negative: bool, text: String) -> String {
        let sign = match is_negative {
            true => "-",
            false if self.has('+') => "+",
            false if self.has(' ') => " ",
            false => "",
        };
        format!("{sign}{text}")
    }

    fn cased(&self, text: String) -> String {
        if self.kind.is_uppercase() { text.to_uppercase() } else { text }
    }

    /// Formats a non-negative number.
    fn float(&self, value: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "nan" } else { "inf" }.to_owned();
        }
        let precision = self.precision.unwrap_or(6);
        match self.kind.to_ascii_lowercase() {
            'f' => format!("{value:.precision$}"),
            'e' => exponential(value, precision),
            'a' => hexadecimal(value, self.precision, self.has('#')),
            _ => self.general(value, precision.max(1)),
        }
    }

    /// `%g`: like `%e` for small and large numbers, else like `%f`; without trailing zeros.
    fn general(&self, value: f64, precision: usize) -> String {
        let text = exponential(value, precision - 1);
        let exponent = text.split_once('e').and_then(|(_, power)| power.parse::<i32>().ok());
        let exponent = exponent.unwrap_or(0);
        let trimmed = |text: &str| match text.contains('.') && !self.has('#') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        if exponent < -4 || exponent >= precision as i32 {
            let (digits, power) = text.split_once('e').unwrap_or((&text, "+00"));
            return format!("{}e{power}", trimmed(digits));
        }
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        trimmed(&format!("{value:.decimals$}"))
    }

    fn padded(&self, body: String) -> String {
        let missing = self.width.saturating_sub(body.chars().count());
        if self.has('-') {
            return body + &" ".repeat(missing);
        }
        let is_integer = "diuoxX".contains(self.kind);
        let without_zeros = !self.has('0')
            || "scp".contains(self.kind)
            || is_integer && self.precision.is_some()
            || body.to_lowercase().contains('n');
        if without_zeros {
            return " ".repeat(missing) + &body;
        }
        let after_sign = body.find(|c: char| !"+- ".contains(c)).unwrap_or(0);
        let prefix = body[after_sign..].to_lowercase().starts_with("0x");
        let (head, digits) = body.split_at(after_sign + if prefix { 2 } else { 0 });
        format!("{head}{}{digits}", "0".repeat(missing))
    }
}

/// A width or precision, which `*` takes from the arguments.
fn number<'t>(
    text: &'t str,
    arguments: &mut Arguments<'_, '_, '_>,
) -> Result<(Option<usize>, &'t str), LaneFault> {
    if let Some(rest) = text.strip_prefix('*') {
        let value = arguments.take(4)? as i32;
        return Ok((Some(usize::try_from(value).unwrap_or(0).min(MAX_STRING_BYTES)), rest));
    }
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - rest.len()];
    Ok((digits.parse().ok().map(|width: usize| width.min(MAX_STRING_BYTES)), rest))
}

/// `1.5e+02`
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

/// `0x1.8p+7`: all digits that the value needs, or `precision` digits, rounded to even.
fn hexadecimal(value: f64, precision: Option<usize>, keeps_point: bool) -> String {
    /// The digits after the point of a float, and their bits.
    const DIGITS: usize = 13;
    const BITS: u32 = 52;
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> BITS, bits & ((1 << BITS) - 1));
    let power = match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => -1022,
        _ => exponent as i32 - 1023,
    };
    let mut digits = fraction | u64::from(exponent != 0) << BITS;
    if let Some(dropped) = precision.and_then(|kept| DIGITS.checked_sub(kept)) {
        let unit = 1 << (4 * dropped);
        let (kept, rest) = (digits / unit, digits % unit);
        let rounds_up = 2 * rest > unit || 2 * rest == unit && kept % 2 == 1;
        digits = (kept + u64::from(rounds_up)) * unit;
    }
    let (first, fraction) = (digits >> BITS, digits & ((1 << BITS) - 1));
    let fraction = format!("{fraction:0DIGITS$x}");
    let fraction = match precision {
        None => fraction.trim_end_matches('0').to_owned(),
        Some(kept) if kept <= DIGITS => fraction[..kept].to_owned(),
        Some(kept) => fraction + &"0".repeat(kept - DIGITS),
    };
    let point = if fraction.is_empty() && !keeps_point { "" } else { "." };
    format!("0x{first:x}{point}{fraction}p{power:+}")
}

impl FaultKind {
    /// Creates the fault of a failed assertion from the arguments of `__assertfail`.
    pub(super) fn assertion(
        memory: &LaneMemory<'_, '_>,
        message: u64,
        file: u64,
        line: u32,
        function: u64,
    ) -> Result<Self, LaneFault> {
        let message = memory.string(message)?;
        let (file, function) = (memory.string(file)?, memory.string(function)?);
        Ok(Self::Assertion { message, file, line, function })
    }
}
