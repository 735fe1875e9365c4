//! Branches, loops and variables from the builder.

use retrograph_ptx::ast::Opcode;
use retrograph_ptx::build::{Kernel, NamedBarrier};

use crate::build::{check, count};

#[test]
fn comparisons_predicates_and_branches() {
    check(Kernel::build("branches", |k| {
        let x = k.pointer::<f32>("x");
        let n = k.param::<u32>("n");
        let v = x.load(0);
        let p = v.lt(1.0) & v.le(n.cast::<f32>()) | v.gt(2.0) ^ !v.ge(3.0);
        k.return_if(!(p & n.eq(4)));
        k.when_else(
            v.ne(v) | x.is_null(),
            || x.store(0, 1.0),
            || k.when(!p, || x.store(1, (!p).select(v, 2.0))),
        );
        k.trap_if(v.eq(f32::INFINITY));
        k.membar_gl();
    }));
}

#[test]
fn named_barriers_separate_arrive_from_sync() {
    let entry = Kernel::build("barriers", |k| {
        let x = k.pointer::<u32>("x");
        let warp = k.tid_x() >> 5;
        let fixed = NamedBarrier { id: k.constant(1), threads: 96 };
        let by_warp = NamedBarrier { id: warp + 2, threads: 64 };
        k.when_else(
            warp.eq(0),
            || {
                x.store(0, 1);
                k.bar_arrive(fixed, None);
                k.bar_sync(by_warp, Some(x.load(1).ne(0)));
            },
            || k.bar_sync(fixed, None),
        );
    });
    check(entry.clone());
    assert_eq!(count(&entry, Opcode::Bar), 3, "{entry:?}");
}

#[test]
#[should_panic(expected = "the threads of a barrier are a multiple of 32")]
fn a_barrier_for_half_a_warp_is_refused() {
    Kernel::build("half", |k| {
        k.bar_sync(NamedBarrier { id: k.constant(1), threads: 48 }, None);
    });
}

#[test]
fn loops_keep_their_variables_in_registers() {
    let entry = Kernel::build("loops", |k| {
        let x = k.pointer::<f32>("x");
        let n = k.param::<u32>("n");
        let sum = k.var(0.0f32);
        k.range(0, n, 4, |i| {
            let x = x.at(i);
            for unrolled in 0..4 {
                sum.update(|sum| x.load(unrolled).fma(2.0, sum));
            }
        });
        let bits = k.var(n);
        let steps = k.var(0u32);
        k.while_loop(
            || bits.get().ne(0),
            || {
                bits.update(|bits| bits >> 1);
                steps.add_assign(1);
                sum.mul_assign(0.5);
                sum.sub_assign(steps.get().cast::<f32>());
            },
        );
        k.range(2, 5, 1, |i| sum.add_assign(i.cast::<f32>()));
        x.store(0, sum);
    });
    check(entry.clone());
    // Every variable is set to its first value, and there is no other copy.
    assert_eq!(count(&entry, Opcode::Mov), 5, "{entry:?}");
}

#[test]
fn a_value_read_from_a_variable_stays_when_the_variable_is_set() {
    let entry = Kernel::build("snapshot", |k| {
        let x = k.pointer::<u32>("x");
        let var = k.var(x.load(0));
        let before = var.get();
        var.set(x.load(1));
        x.store(2, before - var.get());
    });
    let text = check(entry);
    // Both loads must reach the subtraction, by different registers.
    assert!(text.contains("sub.u32             %r2, %r1, %r0;"), "{text}");
}

#[test]
fn swapping_two_variables_swaps_them() {
    let text = check(Kernel::build("swap", |k| {
        let x = k.pointer::<u32>("x");
        let (a, b) = (k.var(x.load(0)), k.var(x.load(1)));
        k.range(0, k.param::<u32>("n"), 1, |_| {
            let (old_a, old_b) = (a.get(), b.get());
            a.set(old_b);
            b.set(old_a);
        });
        x.store(0, a);
        x.store(1, b);
    }));
    // Three moves: one value has to be kept aside.
    let moves = text.lines().filter(|line| line.contains("mov.u32") && !line.contains(", 0;"));
    assert_eq!(moves.count(), 3, "{text}");
}

#[test]
fn unused_results_are_dropped_and_effects_are_kept() {
    let entry = Kernel::build("unused", |k| {
        let x = k.pointer::<f32>("x");
        let unused = x.load(k.tid_x()) * 2.0;
        let _ = unused.exp().ln();
        let one = k.constant(1u32);
        x.reinterpret::<u32>().atom_add(0, one);
    });
    assert_eq!(count(&entry, Opcode::Ld), 1, "the pointer alone is loaded");
    assert_eq!(count(&entry, Opcode::Ex2), 0);
    assert_eq!(count(&entry, Opcode::Atom), 1);
    check(entry);
}

#[test]
#[should_panic(expected = "used outside the block that computed it")]
fn a_value_does_not_leave_its_block() {
    Kernel::build("leak", |k| {
        let x = k.pointer::<f32>("x");
        let leaked = std::cell::Cell::new(None);
        k.when(k.tid_x().eq(0), || leaked.set(Some(x.load(0))));
        x.store(1, leaked.get().expect("the closure has run"));
    });
}
