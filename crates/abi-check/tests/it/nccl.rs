//! nccl-sys against nccl.h, and planted errors as negative control.

use std::sync::LazyLock;

use retrograph_abi_check::check::{Header, compare_headers};
use retrograph_abi_check::compare::Difference;
use retrograph_abi_check::model::{Description, Type};
use retrograph_abi_check::{exceptions, ours};
use retrograph_nccl_sys::NcclTable;

const BY_BINDGEN: [&str; 2] = ["nccl.h 2.32.3 by bindgen", "nccl.h 2.18.3 by bindgen"];
const BY_C: [&str; 2] = ["nccl.h 2.32.3 by cc", "nccl.h 2.18.3 by cc"];

fn headers() -> Option<&'static [Header; 2]> {
    static HEADERS: LazyLock<Option<[Header; 2]>> = LazyLock::new(|| {
        let tools = crate::tools()?;
        Some(Header::read_nccl(tools).unwrap_or_else(|error| panic!("{error}")))
    });
    HEADERS.as_ref()
}

fn described() -> Description {
    ours::describe_nccl().unwrap_or_else(|error| panic!("{error}"))
}

fn differences(plant: impl FnOnce(&mut Description)) -> Option<Vec<Difference>> {
    let mut ours = described();
    plant(&mut ours);
    Some(compare_headers(headers()?, &ours).unwrap_or_else(|error| panic!("{error}")))
}

#[track_caller]
fn assert_noticed(by: &[&str], item: &str, plant: impl FnOnce(&mut Description)) {
    let Some(differences) = differences(plant) else { return };
    for source in by {
        let notices = |one: &Difference| one.item == item && one.source == *source;
        assert!(differences.iter().any(notices), "{item}: {source} noticed nothing");
    }
}

#[test]
fn everything_that_nccl_sys_declares_is_confirmed() {
    let Some(found) = differences(|_| {}) else { return };
    let (left, idle) = exceptions::apply(exceptions::NCCL, found);
    assert!(idle.is_empty(), "exceptions that excuse nothing: {:?}", idle[0].item);
    let lines: Vec<String> = left.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} differences:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_description_has_every_function_and_the_constants() {
    let ours = described();
    let functions = NcclTable::REQUIRED.len() + NcclTable::OPTIONAL.len();
    assert_eq!(ours.functions.len(), functions);
    for name in ["ncclSum", "ncclBfloat16", "ncclRemoteError", "NCCL_UNIQUE_ID_BYTES"] {
        assert!(ours.constants.contains_key(name), "{name}");
    }
    assert!(ours.types.contains_key("ncclUniqueId") && ours.types.contains_key("ncclComm_t"));
}

#[test]
fn planted_errors_are_noticed() {
    let both = [BY_BINDGEN, BY_C].concat();
    assert_noticed(&both, "value of ncclBfloat16", |ours| {
        ours.constants.get_mut("ncclBfloat16").unwrap().value = 8;
    });
    assert_noticed(&both, "size of ncclUniqueId", |ours| {
        ours.types.get_mut("ncclUniqueId").unwrap().size = Some(64);
    });
    assert_noticed(&both, "signature of ncclAllReduce", |ours| {
        ours.functions.get_mut("ncclAllReduce").unwrap().arguments.swap(0, 2);
    });
    assert_noticed(&both, "signature of ncclGetLastError", |ours| {
        ours.functions.get_mut("ncclGetLastError").unwrap().result = Type::Void.pointer(true);
    });
    assert_noticed(&both, "signature of ncclTogether", |ours| {
        let function = ours.functions["ncclGroupStart"].clone();
        ours.functions.insert("ncclTogether".to_owned(), function);
    });
}
