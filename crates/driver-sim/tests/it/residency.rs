//! Grids with more blocks than a device can hold at once.

use std::ffi::{CStr, c_void};

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

/// The first thread of each block adds 1 to a counter, and waits until every block has done so.
const MEET: &CStr = c"
.version 8.0
.target sm_90
.address_size 64
.visible .entry meet(.param .u64 counter)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<2>;
    .shared .align 8 .b64 bar;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    ld.param.u64 %rd1, [counter];
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, bar;
    mbarrier.init.shared.b64 [%r3], 1;
    atom.global.add.u32 %r4, [%rd1], 1;
WAIT:
    mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0;
    @%p2 ret;
    ld.volatile.global.u32 %r5, [%rd1];
    setp.lt.u32 %p3, %r5, %r2;
    @%p3 bra WAIT;
    ret;
}";

/// Runs blocks that wait for all others. Returns the undefined behaviour.
fn meet(blocks: u32, threads: u32, shared_bytes: u32) -> Vec<String> {
    let machine = Machine::with(with(Config::default(), |it| it.threads = 1));
    let module = machine.load(MEET).unwrap();
    let (mut function, none) = (CUfunction::NULL, std::ptr::null_mut());
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"meet".as_ptr()));
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    let (mut counter, stream) = (machine.zero(), machine.stream());
    let mut list = [(&raw mut counter).cast::<c_void>()];
    let list = list.as_mut_ptr();
    let launched = cu!(
        machine,
        cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, list, none)
    );
    assert_eq!(launched, CUresult::CUDA_SUCCESS);
    let code = machine.sync(stream);
    let said = machine.diagnostics(DiagnosticKind::Undefined);
    assert_eq!(code == CUresult::CUDA_SUCCESS, said.is_empty());
    said
}

#[test]
fn a_grid_that_waits_for_blocks_that_do_not_fit_is_a_deadlock() {
    // 132 SMs: two blocks of 1024 threads each, 32 small blocks, or four of 47 KiB and a barrier.
    for (fit, threads, shared_bytes) in [(264, 1024, 0), (4224, 1, 0), (528, 64, 47 << 10)] {
        assert_eq!(meet(fit, threads, shared_bytes), [""; 0], "{fit} blocks fit");
        let said = meet(fit + 9, threads, shared_bytes);
        let counts = format!(
            "; {fit} of {} blocks are resident, and 9 start only when one of these ends",
            fit + 9
        );
        assert!(said[0].contains(&counts), "{said:?}");
        assert!(said[0].contains("in kernel `meet`, block ("), "{said:?}");
    }
}
