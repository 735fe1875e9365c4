//! Settings from environment variables, the only way to configure the library in an unmodified
//! program.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use retrograph_driver_sim::{Config, Order};

/// The machine and its behaviour at unsupported calls.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) on_unsupported: OnUnsupported,
    /// The file that gets the report as JSON when the process exits.
    pub(crate) report: Option<PathBuf>,
    /// The key of the integrity check of the CUDA runtime.
    pub(crate) runtime_key: Option<[u8; 16]>,
}

/// The behaviour at a call that is not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUnsupported {
    /// Abort the process, so that a debugger or a core file shows the call.
    Abort,
    /// Return 801 and change nothing.
    Return,
}

/// An invalid variable.
#[derive(Debug)]
pub(crate) struct BadSetting {
    pub(crate) name: &'static str,
    pub(crate) value: OsString,
    pub(crate) wanted: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}; set it to {}", self.name, self.value, self.wanted)
    }
}

impl Settings {
    /// Reads the variables `RETROGRAPH_SIM_…`; docs/sim-libcuda.md lists them.
    pub(crate) fn from_environment() -> Result<Self, BadSetting> {
        Self::read(&|name| std::env::var_os(name))
    }

    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, BadSetting> {
        let mut config = Config::default();
        let reader = Reader { variable };
        config.devices =
            reader.read("RETROGRAPH_SIM_DEVICES", "a number", number)?.unwrap_or(config.devices);
        config.memory_bytes = reader
            .read("RETROGRAPH_SIM_MEMORY", "bytes, such as 512M or 4G", bytes)?
            .unwrap_or(config.memory_bytes);
        config.compute_capability = reader
            .read("RETROGRAPH_SIM_CAPABILITY", "a version such as 9.0", version)?
            .unwrap_or(config.compute_capability);
        config.driver_version = reader
            .read("RETROGRAPH_SIM_DRIVER", "a version such as 12.9", version)?
            .map_or(config.driver_version, |(major, minor)| (major * 1000 + minor * 10) as i32);
        config.threads =
            reader.read("RETROGRAPH_SIM_THREADS", "a number", number)?.unwrap_or(config.threads);
        config.order = reader
            .read("RETROGRAPH_SIM_ORDER", "prompt or adversarial", |text| match text {
                "prompt" => Some(Order::Prompt),
                "adversarial" => Some(Order::Adversarial),
                _ => None,
            })?
            .unwrap_or(config.order);
        config.seed =
            reader.read("RETROGRAPH_SIM_SEED", "a number", number)?.unwrap_or(config.seed);
        config.detect_races = reader
            .read("RETROGRAPH_SIM_RACES", "0 or 1", |text| match text {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            })?
            .unwrap_or(config.detect_races);
        let on_unsupported = reader
            .read("RETROGRAPH_SIM_ON_UNSUPPORTED", "abort or return", |text| match text {
                "abort" => Some(OnUnsupported::Abort),
                "return" => Some(OnUnsupported::Return),
                _ => None,
            })?
            .unwrap_or(OnUnsupported::Return);
        let report = (variable)("RETROGRAPH_SIM_REPORT").filter(|path| !path.is_empty());
        let report = report.map(PathBuf::from);
        // An empty key is none: CI sets an empty variable for a secret that it does not have.
        let with_key = |name: &str| (variable)(name).filter(|key| !key.is_empty());
        let runtime_key = Reader { variable: &with_key }
            .read("RETROGRAPH_SIM_RUNTIME_KEY", "32 hex digits", key)
            // Logs must not show a secret, even a mistyped one.
            .map_err(|error| BadSetting { value: "…".into(), ..error })?;
        Ok(Self { config, on_unsupported, report, runtime_key })
    }
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Reader<'_> {
    fn read<T>(
        &self,
        name: &'static str,
        wanted: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, BadSetting> {
        let Some(value) = (self.variable)(name) else { return Ok(None) };
        match value.to_str().and_then(parse) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(BadSetting { name, value, wanted }),
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A number of bytes with an optional suffix K, M or G (powers of 1024).
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `9.0` as `(9, 0)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 100 && minor < 100).then_some((major, minor))
}

/// 16 bytes as hex digits.
fn key(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(text, 16).ok())?;
    number.map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, BadSetting> {
        Settings::read(&|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn an_empty_environment_gives_the_default_machine() {
        let settings = Settings::read(&|_| None).unwrap();
        assert_eq!(settings.config, Config::default());
        assert_eq!(settings.on_unsupported, OnUnsupported::Return);
    }

    #[test]
    fn each_variable_changes_its_part() {
        let config = |name, value| read(name, value).unwrap().config;
        assert_eq!(config("RETROGRAPH_SIM_DEVICES", "3").devices, 3);
        assert_eq!(config("RETROGRAPH_SIM_MEMORY", "4096").memory_bytes, 4096);
        assert_eq!(config("RETROGRAPH_SIM_MEMORY", "3M").memory_bytes, 3 << 20);
        assert_eq!(config("RETROGRAPH_SIM_CAPABILITY", "8.6").compute_capability, (8, 6));
        assert_eq!(config("RETROGRAPH_SIM_DRIVER", "12.9").driver_version, 12090);
        assert_eq!(config("RETROGRAPH_SIM_THREADS", "1").threads, 1);
        assert_eq!(config("RETROGRAPH_SIM_SEED", "42").seed, 42);
        assert_eq!(config("RETROGRAPH_SIM_ORDER", "prompt").order, Order::Prompt);
        assert_eq!(config("RETROGRAPH_SIM_ORDER", "adversarial").order, Order::Adversarial);
        assert!(config("RETROGRAPH_SIM_RACES", "1").detect_races);
        assert!(!config("RETROGRAPH_SIM_RACES", "0").detect_races);
        let report = |path| read("RETROGRAPH_SIM_REPORT", path).unwrap().report;
        assert_eq!(report("/r.json"), Some(PathBuf::from("/r.json")));
        assert_eq!(report(""), None);
        let key = |digits: &str| read("RETROGRAPH_SIM_RUNTIME_KEY", digits).unwrap().runtime_key;
        assert_eq!(key(&"0A".repeat(16)), Some([10; 16]));
        assert_eq!(key(""), None);
        let settings = read("RETROGRAPH_SIM_ON_UNSUPPORTED", "abort").unwrap();
        assert_eq!(settings.on_unsupported, OnUnsupported::Abort);
    }

    #[test]
    fn a_value_that_is_not_unicode_is_a_path_or_an_error() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let value = OsStr::from_bytes(b"\xff");
        let read = |name| Settings::read(&|asked| (asked == name).then(|| value.to_owned()));
        assert_eq!(read("RETROGRAPH_SIM_REPORT").unwrap().report, Some(PathBuf::from(value)));
        let error = read("RETROGRAPH_SIM_MEMORY").unwrap_err().to_string();
        assert!(error.contains(r#"RETROGRAPH_SIM_MEMORY is "\xFF""#), "{error}");
    }

    #[test]
    fn invalid_settings_are_named() {
        let said = |name, value| read(name, value).unwrap_err().to_string();
        assert_eq!(
            said("RETROGRAPH_SIM_MEMORY", "4T"),
            "RETROGRAPH_SIM_MEMORY is \"4T\"; set it to bytes, such as 512M or 4G"
        );
        assert!(said("RETROGRAPH_SIM_CAPABILITY", "9").contains("a version such as 9.0"));
        assert!(said("RETROGRAPH_SIM_ORDER", "late").contains("prompt or adversarial"));
        assert!(said("RETROGRAPH_SIM_ON_UNSUPPORTED", "ignore").contains("abort or return"));
        assert!(said("RETROGRAPH_SIM_MEMORY", "99999999999G").contains("bytes"));
        for digits in ["0a", "+a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", &"0g".repeat(16)] {
            let said = said("RETROGRAPH_SIM_RUNTIME_KEY", digits);
            assert!(said.contains("32 hex digits") && !said.contains(digits), "{said}");
        }
    }
}
