//! SM targets and PTX ISA versions: which image runs on which device.

use std::fmt;
use std::str::FromStr;

/// A version of the PTX instruction set architecture, the `.version` line of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IsaVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl IsaVersion {
    /// Version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for IsaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The devices that can run an image for a target: the suffix of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// `sm_90`: later devices too.
    Forward,
    /// `sm_100f`: later devices of the same family, which have the same major number.
    FamilySpecific,
    /// `sm_90a`: exactly that device.
    ArchSpecific,
}

/// An SM target, the `.target` line of an image, such as `sm_80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmTarget {
    /// Compute capability as `major * 10 + minor`, for example 90.
    pub number: u32,
    /// The devices that can run its images.
    pub reach: Reach,
}

/// The content of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageForm {
    /// Text, which the driver compiles for its device.
    Ptx,
    /// Machine code, which the driver does not recompile.
    Cubin,
}

/// An image that cannot run on a device. This is detected before the driver call, because the
/// driver's error codes name neither of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{form} for {target} does not run on a device of {device}; {}", self.advice())]
pub struct CannotRun {
    /// The content.
    pub form: ImageForm,
    /// The SM target.
    pub target: SmTarget,
    /// The target of exactly the device.
    pub device: SmTarget,
}

impl SmTarget {
    /// The targets for which the workspace generates images. For compute capability 9.0 it is
    /// `sm_90a`: tensor cores only reach their full rate with instructions that no other device
    /// has, and every later device has its own target.
    pub const GENERATED: &[Self] = &[
        Self::portable(75),
        Self::portable(80),
        Self::portable(86),
        Self::portable(89),
        Self::arch_specific(90),
        Self::portable(100),
        Self::portable(120),
    ];

    /// The forward-compatible target `sm_<number>`.
    pub const fn portable(number: u32) -> Self {
        Self { number, reach: Reach::Forward }
    }

    /// The target `sm_<number>a`, whose images run on no later device.
    pub const fn arch_specific(number: u32) -> Self {
        Self { number, reach: Reach::ArchSpecific }
    }

    /// The forward-compatible target of a device of compute capability `major.minor`.
    pub const fn of_device(major: u32, minor: u32) -> Self {
        // Numbers that no device has must not wrap around to an existing target.
        Self::portable(major.saturating_mul(10).saturating_add(minor))
    }

    /// Returns the target on the `.target` line of PTX, or `None` without such a line.
    pub fn named_in(ptx: &str) -> Option<Self> {
        let mut lines = ptx.lines().map(str::trim_start);
        let line = lines.find_map(|line| line.strip_prefix(".target"))?;
        line.split([' ', '\t', ',', '/']).find(|word| !word.is_empty())?.parse().ok()
    }

    /// Whether PTX for this target can be loaded on a device of compute capability `major.minor`.
    /// Arch-specific targets run only on their device, family targets also on later devices of the
    /// same major number, others on every later device.
    pub fn runs_on(self, major: u32, minor: u32) -> bool {
        self.require(ImageForm::Ptx, Self::of_device(major, minor)).is_ok()
    }

    /// Fails unless an image of this form and target runs on `device`. A cubin needs a device of
    /// the same major number and the same or a higher minor number, even without a letter.
    ///
    /// Source: "Application Compatibility" and "Feature Set Compiler Targets" in the CUDA C++
    /// programming guide.
    ///
    /// # Errors
    /// [`CannotRun`], which names both and a remedy.
    pub fn require(self, form: ImageForm, device: Self) -> Result<(), CannotRun> {
        let later = device.number >= self.number;
        let of_family = later && device.number / 10 == self.number / 10;
        let runs = match (self.reach, form) {
            (Reach::ArchSpecific, _) => device.number == self.number,
            (Reach::FamilySpecific, _) | (Reach::Forward, ImageForm::Cubin) => of_family,
            (Reach::Forward, ImageForm::Ptx) => later,
        };
        if runs { Ok(()) } else { Err(CannotRun { form, target: self, device }) }
    }

    /// The newest generated target whose images run on a device of compute capability
    /// `major.minor`, or `None` for a device older than all of them.
    pub fn for_device(major: u32, minor: u32) -> Option<Self> {
        Self::GENERATED.iter().copied().rev().find(|target| target.runs_on(major, minor))
    }

    /// Returns the generated target for this one: itself, or the one for the same device if this
    /// one has no letter, such as `sm_90a` for `sm_90`.
    pub fn generated(self) -> Option<Self> {
        let meant = |target: &Self| {
            *target == self || self.reach == Reach::Forward && target.number == self.number
        };
        Self::GENERATED.iter().copied().find(meant)
    }

    /// Whether a version of the PTX ISA has this target.
    pub fn is_known(self) -> bool {
        row(self.number).is_some_and(|row| row.version(self.reach).is_some())
    }

    /// Returns the lowest PTX ISA version that supports this target. For an unknown target, returns
    /// the version of the next higher number.
    ///
    /// Source: `ptxas` 13.0, tested with every version and target.
    pub fn min_isa(self) -> IsaVersion {
        let known = row(self.number).and_then(|row| row.version(self.reach));
        let later = || TARGETS.iter().find(|row| row.number >= self.number);
        known.unwrap_or_else(|| later().map_or(NEWEST_ISA, |row| row.forward))
    }
}

/// The newest PTX ISA version of the table.
const NEWEST_ISA: IsaVersion = IsaVersion::new(9, 0);

/// The lowest PTX ISA versions of the targets with one number.
struct Row {
    number: u32,
    forward: IsaVersion,
    arch_specific: Option<IsaVersion>,
    family: Option<IsaVersion>,
}

impl Row {
    fn version(&self, reach: Reach) -> Option<IsaVersion> {
        match reach {
            Reach::Forward => Some(self.forward),
            Reach::ArchSpecific => self.arch_specific,
            Reach::FamilySpecific => self.family,
        }
    }
}

fn row(number: u32) -> Option<&'static Row> {
    TARGETS.iter().find(|row| row.number == number)
}

/// The targets that `ptxas` 13.0 accepts, in ascending order.
const TARGETS: [Row; 31] = {
    const fn version([major, minor]: [u32; 2]) -> IsaVersion {
        IsaVersion::new(major, minor)
    }
    const fn plain(number: u32, least: [u32; 2]) -> Row {
        Row { number, forward: version(least), arch_specific: None, family: None }
    }
    const fn all(number: u32, least: [u32; 2], family: [u32; 2]) -> Row {
        let (forward, family) = (version(least), Some(version(family)));
        Row { number, forward, arch_specific: Some(forward), family }
    }
    [
        plain(10, [1, 0]),
        plain(11, [1, 0]),
        plain(12, [1, 2]),
        plain(13, [1, 2]),
        plain(20, [2, 0]),
        plain(21, [2, 0]),
        plain(30, [3, 0]),
        plain(32, [4, 0]),
        plain(35, [3, 1]),
        plain(37, [4, 1]),
        plain(50, [4, 0]),
        plain(52, [4, 1]),
        plain(53, [4, 2]),
        plain(60, [5, 0]),
        plain(61, [5, 0]),
        plain(62, [5, 0]),
        plain(70, [6, 0]),
        plain(72, [6, 1]),
        plain(75, [6, 3]),
        plain(80, [7, 0]),
        plain(86, [7, 1]),
        plain(87, [7, 4]),
        plain(88, [7, 3]),
        plain(89, [7, 8]),
        Row { arch_specific: Some(version([8, 0])), ..plain(90, [7, 8]) },
        all(100, [8, 6], [8, 8]),
        all(101, [8, 6], [8, 8]),
        all(103, [8, 8], [8, 8]),
        all(110, [9, 0], [9, 0]),
        all(120, [8, 7], [8, 8]),
        all(121, [8, 8], [8, 8]),
    ]
};

impl fmt::Display for SmTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.reach {
            Reach::Forward => "",
            Reach::FamilySpecific => "f",
            Reach::ArchSpecific => "a",
        };
        write!(f, "sm_{}{letter}", self.number)
    }
}

impl fmt::Display for ImageForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptx => "PTX",
            Self::Cubin => "a cubin",
        })
    }
}

impl CannotRun {
    fn advice(&self) -> String {
        let device = self.device;
        if self.target.number > device.number {
            return format!("generate it for {device} or an older target");
        }
        match (self.form, self.target.reach) {
            (ImageForm::Cubin, _) => format!("compile its PTX for {device}, or load the PTX"),
            (ImageForm::Ptx, _) => format!(
                "a letter after the number ties it to one device or family; generate it for {} \
                 without a letter, or for {device}",
                SmTarget::portable(self.target.number)
            ),
        }
    }
}

/// The text is not the name of an SM target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an SM target; write it like sm_90, sm_90a or sm_100f")]
pub struct ParseSmTargetError {
    /// The given text.
    pub text: String,
}

impl FromStr for SmTarget {
    type Err = ParseSmTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseSmTargetError { text: text.to_owned() };
        let rest = text.strip_prefix("sm_").ok_or_else(error)?;
        let (digits, reach) = match rest.as_bytes().last() {
            Some(b'a') => (&rest[..rest.len() - 1], Reach::ArchSpecific),
            Some(b'f') => (&rest[..rest.len() - 1], Reach::FamilySpecific),
            _ => (rest, Reach::Forward),
        };
        let number = digits.parse().map_err(|_| error())?;
        Ok(Self { number, reach })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_targets_are_those_of_ptxas() {
        let least = |name: &str| {
            let target: SmTarget = name.parse().unwrap();
            target.is_known().then(|| target.min_isa().to_string())
        };
        let known = [("sm_10", "1.0"), ("sm_20", "2.0"), ("sm_87", "7.4"), ("sm_90a", "8.0")];
        for (name, isa) in known.into_iter().chain([("sm_100f", "8.8"), ("sm_120a", "8.7")]) {
            assert_eq!(least(name).as_deref(), Some(isa), "{name}");
        }
        for name in ["sm_42", "sm_75a", "sm_80f", "sm_90f", "sm_85"] {
            assert_eq!(least(name), None, "{name}");
        }
        assert!(TARGETS.is_sorted_by_key(|row| row.number));
        assert!(SmTarget::GENERATED.iter().all(|target| target.is_known()));
    }

    #[test]
    fn portable_images_run_on_later_devices_and_arch_specific_ones_do_not() {
        assert!(SmTarget::portable(80).runs_on(9, 0));
        assert!(!SmTarget::portable(90).runs_on(8, 9));
        let arch_specific: SmTarget = "sm_90a".parse().unwrap();
        assert!(arch_specific.runs_on(9, 0) && !arch_specific.runs_on(10, 0));
        assert_eq!(arch_specific.to_string(), "sm_90a");
    }

    #[test]
    fn a_device_gets_the_newest_target_that_runs_on_it() {
        assert_eq!(SmTarget::for_device(8, 7), Some(SmTarget::portable(86)));
        assert_eq!(SmTarget::for_device(9, 0), Some(SmTarget::arch_specific(90)));
        assert_eq!(SmTarget::for_device(10, 3), Some(SmTarget::portable(100)));
        assert_eq!(SmTarget::for_device(12, 1), Some(SmTarget::portable(120)));
        assert_eq!(SmTarget::for_device(7, 0), None);
    }

    #[test]
    fn a_generated_target_is_found_with_or_without_its_letter() {
        let meant = |name: &str| name.parse::<SmTarget>().unwrap().generated();
        assert_eq!(meant("sm_90"), Some(SmTarget::arch_specific(90)));
        assert_eq!(meant("sm_90a"), Some(SmTarget::arch_specific(90)));
        assert_eq!(meant("sm_80"), Some(SmTarget::portable(80)));
        assert_eq!((meant("sm_80a"), meant("sm_87")), (None, None));
    }

    #[test]
    fn an_invalid_capability_does_not_wrap_to_a_real_device() {
        let beyond = SmTarget::of_device(u32::MAX, u32::MAX);
        assert!(!beyond.is_known());
        assert_eq!(SmTarget::of_device(429_496_729, u32::MAX), beyond);
        assert!(SmTarget::portable(90).runs_on(u32::MAX, 0));
    }

    #[test]
    fn family_images_run_within_their_major_number() {
        let family: SmTarget = "sm_100f".parse().unwrap();
        assert_eq!(family.to_string(), "sm_100f");
        assert!(family.runs_on(10, 0) && family.runs_on(10, 3));
        assert!(!family.runs_on(9, 0) && !family.runs_on(11, 0) && !family.runs_on(12, 0));
    }

    #[test]
    fn cubins_run_on_the_same_major_and_the_same_or_a_higher_minor_number() {
        let runs = |image: &str, device| {
            let image: SmTarget = image.parse().unwrap();
            image.require(ImageForm::Cubin, SmTarget::portable(device)).is_ok()
        };
        assert!(runs("sm_80", 80) && runs("sm_80", 89) && runs("sm_90a", 90));
        assert!(!runs("sm_89", 86) && !runs("sm_80", 90) && !runs("sm_90a", 100));
        assert!(runs("sm_100f", 103) && !runs("sm_100a", 103));
    }

    #[test]
    fn a_refusal_names_both_targets_and_the_remedy() {
        let message = |image: &str, form, device| {
            let image: SmTarget = image.parse().unwrap();
            image.require(form, SmTarget::portable(device)).unwrap_err().to_string()
        };
        let text = message("sm_90a", ImageForm::Ptx, 100);
        assert!(text.contains("sm_90a") && text.contains("sm_100"), "{text}");
        assert!(text.contains("generate it for sm_90 without a letter"), "{text}");
        let text = message("sm_120", ImageForm::Ptx, 90);
        assert!(text.contains("generate it for sm_90 or an older"), "{text}");
        let text = message("sm_80", ImageForm::Cubin, 90);
        assert!(text.contains("compile its PTX for sm_90"), "{text}");
    }

    #[test]
    fn the_target_of_a_text_is_its_target_line() {
        let target = |text| SmTarget::named_in(text).map(|target| target.to_string());
        assert_eq!(target(".version 8.0\n .target sm_90a\n").as_deref(), Some("sm_90a"));
        assert_eq!(target(".target\tsm_80, debug // x").as_deref(), Some("sm_80"));
        assert_eq!(target("// .target sm_80\n"), None);
    }
}
