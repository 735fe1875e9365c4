//! Kernels from the builder: each construct is printed, parsed back and assembled.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Opcode, Statement};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};
use retrograph_ptx::parse;

use crate::ptxas;

/// Checks that a kernel survives printing and parsing on every target and that `ptxas` accepts it
/// on the oldest and the newest, and returns its text.
#[track_caller]
pub(crate) fn check(entry: Entry) -> String {
    let mut texts = Vec::new();
    for &target in SmTarget::GENERATED {
        let module = ModuleBuilder::new(target).entry(entry.clone()).build();
        let text = module.to_string();
        assert_eq!(parse(&text).as_ref(), Ok(&module), "{text}");
        texts.push((target, text));
    }
    for (target, text) in [&texts[0], &texts[texts.len() - 1]] {
        ptxas::must_assemble(text, &target.to_string());
    }
    texts.swap_remove(0).1
}

/// How often an opcode occurs in the entry.
pub(crate) fn count(entry: &Entry, opcode: Opcode) -> usize {
    let is = |statement: &&Statement| match statement {
        Statement::Instruction(instruction) => instruction.opcode == opcode,
        Statement::Label(_) => false,
    };
    entry.body.iter().filter(is).count()
}

#[test]
fn a_small_kernel_prints_like_handwritten_ptx() {
    let entry = Kernel::build("scale", |k| {
        let x = k.pointer::<f32>("x");
        let n = k.param::<u32>("n");
        k.max_threads(128);
        let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
        k.when(i.lt(n), || x.store(i, x.load(i) * 2.0 + 1.0));
    });
    let expected = "\
.version 6.3
.target sm_75
.address_size 64

.visible .entry scale(
    .param .u64 x,
    .param .u32 n
)
.maxntid 128, 1, 1
{
    .reg .pred %p<1>;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;

    ld.param.u64        %rd0, [x];
    cvta.to.global.u64  %rd1, %rd0;
    ld.param.u32        %r0, [n];
    mov.u32             %r1, %ctaid.x;
    mov.u32             %r2, %ntid.x;
    mov.u32             %r3, %tid.x;
    mul.lo.u32          %r4, %r1, %r2;
    add.u32             %r5, %r4, %r3;
    setp.lt.u32         %p0, %r5, %r0;
    @!%p0 bra           $when1_end;
    mad.wide.u32        %rd2, %r5, 4, %rd1;
    ld.global.f32       %f0, [%rd2];
    mul.rn.f32          %f1, %f0, 0f40000000;
    add.rn.f32          %f2, %f1, 0f3F800000;
    mad.wide.u32        %rd3, %r5, 4, %rd1;
    st.global.f32       [%rd3], %f2;
$when1_end:
    ret;
}
";
    assert_eq!(check(entry), expected);
}

#[test]
fn operators_of_every_type() {
    check(Kernel::build("operators", |k| {
        let (f, d) = (k.pointer::<f32>("f"), k.pointer::<f64>("d"));
        let (u, s) = (k.pointer::<u32>("u"), k.pointer::<i32>("s"));
        let (l, m) = (k.pointer::<u64>("l"), k.pointer::<i64>("m"));
        let (a, b) = (f.load(0), f.load(1));
        f.store(2, -(a + b) * (a - b) / (1.0 - a).max(b).min(a.abs()));
        let (a, b) = (d.load(0), d.load(1));
        d.store(2, -(a + b) * (a - b) / (1.0 - a).max(b).min(a.abs()));
        let (a, b) = (u.load(0), u.load(1));
        u.store(2, -((((((a + b) * (a - b) / 3 % b) << 2) >> 1) & 7) | (a ^ !b)).max(5 - a));
        u.store(3, a.mul_hi(b) + a.mad_lo(b, 4) + a.popc());
        u.store(4, a.prmt(b, 0x4051) + a.prmt(7, b));
        l.store(1, a.mul_wide(b));
        let (a, b) = (s.load(0), s.load(1));
        s.store(2, -((((((a + b) * (a - b) / 3 % b) << 2) >> 1) & 7) | (a ^ !b)).abs());
        let (a, b) = (l.load(0), l.load(1));
        l.store(2, -((((((a + b) * (a - b) / 3 % b) << 2) >> 1) & 7) | (a ^ !b)).min(9));
        let (a, b) = (m.load(0), m.load(1));
        m.store(2, -((((((a + b) * (a - b) / 3 % b) << 2) >> 1) & 7) | (a ^ !b)).abs());
    }));
}

#[test]
fn float_functions() {
    let text = check(Kernel::build("functions", |k| {
        let (f, d) = (k.pointer::<f32>("f"), k.pointer::<f64>("d"));
        let x = f.load(0);
        let all = [x.sqrt(), x.rsqrt(), x.rcp(), x.exp(), x.exp2(), x.ln(), x.tanh()];
        for (i, value) in all.into_iter().enumerate() {
            f.store(i, value.fma(x, 2.0));
        }
        f.store(9, x.copysign(-1.0));
        f.store(10, Value::<f32>::from_bits(x.bits() ^ 1));
        f.store(11, x.is_finite().select(x, 0.0));
        let y = d.load(0);
        d.store(1, y.sqrt() + y.rsqrt().fma(y, y.rcp()));
        d.store(2, Value::<f64>::from_bits(y.bits() ^ 1));
    }));
    assert!(!text.contains(".ftz"), "nothing flushes denormals");
}

#[test]
fn casts_between_all_types() {
    let entry = Kernel::build("casts", |k| {
        let out = k.pointer::<u32>("out");
        let (a, b) = (k.param::<u32>("a"), k.param::<i32>("b"));
        let (c, d) = (k.param::<u64>("c"), k.param::<f32>("d"));
        let e = k.param::<f64>("e");
        macro_rules! to {
            ($($ty:ty)*) => { $(
                let out = out.reinterpret::<$ty>();
                out.store(0, a.cast::<$ty>());
                out.store(1, b.cast::<$ty>());
                out.store(2, c.cast::<$ty>());
                out.store(3, d.cast::<$ty>());
                out.store(4, e.cast::<$ty>());
            )* };
        }
        to!(u32 i32 u64 i64 f32 f64);
    });
    check(entry.clone());
    // Six targets from five types, less the conversions that keep the register: u32 and i32 from
    // each other and themselves (4), u64 and i64 from u64 (2), and both floats from themselves (2).
    assert_eq!(count(&entry, Opcode::Cvt), 6 * 5 - 8);
}

#[test]
fn global_and_shared_memory() {
    let text = check(Kernel::build("memory", |k| {
        let x = k.pointer::<f32>("x");
        let (n, far) = (k.param::<u32>("n"), k.param::<u64>("far"));
        let tile = k.shared::<f32>("tile", 64);
        let doubles = k.shared::<f64>("doubles", 8);
        let dynamic = k.dynamic_shared::<f32>();
        let again = k.dynamic_shared::<u32>();
        let four = x.load_vec4(0);
        tile.store_vec4(0, four);
        tile.at(n).store_vec4(4, x.at(far).load_vec4_nc(8));
        dynamic.store_vec4(n, tile.load_vec4(n));
        x.at(1u32 << 29).store_vec4(0, dynamic.load_vec4(4));
        let [a, b] = x.load_vec2(2);
        x.at(n.cast::<i32>() - 1).store_vec2(0, [b, a]);
        tile.store_vec2(n, [a, b]);
        doubles.store(1, doubles.load(far) + doubles.load_vec2(2)[1]);
        again.store(n, tile.at(n).offset(-3).address());
        x.store(-1, x.offset(-1).load_nc(n));
        let table = k.pointer::<u64>("table");
        let nested = retrograph_ptx::build::Ptr::<f32>::from_address(table.load(n));
        nested.store(0, k.constant(1.0));
        k.barrier();
    }));
    for fragment in [
        "ld.global.v4.f32    {%f0, %f1, %f2, %f3}, [%rd1];",
        "st.shared.v4.f32    [tile], {%f0, %f1, %f2, %f3};",
        "ld.global.nc.v4.f32",
        "[%rd1+-4]",
        ".extern .shared .align 16 .b8 dynamic_shared[];",
    ] {
        assert!(text.contains(fragment), "{fragment} in {text}");
    }
}

#[test]
fn warps_blocks_and_atomics() {
    check(Kernel::build("together", |k| {
        let (x, u) = (k.pointer::<f32>("x"), k.pointer::<u32>("u"));
        let v = x.load(k.tid_x() + k.tid_y() * k.ntid_y() + k.tid_z() * k.nctaid_z());
        x.store(0, k.shfl_bfly(v, 1) + k.shfl_down(v, 2) + k.shfl_up(v, 3));
        x.store(1, k.shfl_idx(v, k.lane()) + k.warp_sum(v) + k.warp_max(v));
        let sum = k.block_sum(v);
        x.store(2, sum + k.block_sum(v - sum) + k.block_max(v));
        let condition = v.gt(0.0);
        u.store(0, k.vote_ballot(!condition) + k.warp());
        u.store(1, (k.vote_any(condition) & k.vote_all(condition)).select(1u32, 0));
        let tally = k.shared::<u32>("tally", 4);
        let one = k.constant(1u32);
        u.atom_add(2, tally.atom_add(k.lane(), one));
        u.atom_max(3, tally.atom_min(0, one));
        u.atom_exch(4, tally.atom_cas(1, 0, one));
        x.atom_add(5, x.atom_exch(6, x.atom_cas(7, 0.0, v)));
    }));
}

#[test]
fn tensor_cores_and_16_bit_types_assemble_on_targets_that_have_them() {
    let entry = Kernel::build("tensor", |k| {
        let x = k.pointer::<f32>("x");
        let memory = k.shared::<u32>("memory", 256);
        let lane = k.lane();
        memory.store(lane, x.load(lane).cvt_rn_bf16x2(x.load(lane + 32)));
        memory.store(lane + 64, x.load(lane).cvt_rn_f16x2(x.load(lane + 32)));
        memory.store(lane + 32, x.load_u8(lane) | (x.load_u16(lane) << 16));
        k.barrier();
        let sums = [(); 4].map(|()| k.var(0.0f32));
        let rows = memory.at((lane & 15) * 4).ldmatrix_x4(false);
        let columns = memory.at((lane & 15) * 4).offset(4).ldmatrix_x4(true);
        k.mma_m16n8k16_bf16(rows, [columns[0], columns[1]], sums);
        k.mma_m16n8k16_bf16(rows, [columns[2], columns[3]], sums);
        x.at(lane * 4).offset(32).prefetch_l2();
        memory.at(lane * 4).cp_async(x.at(lane * 4), k.constant(12u32));
        k.cp_async_commit_group();
        memory.at(lane * 4).offset(128).cp_async(x.at(lane * 4), lane.min(16u32));
        k.cp_async_commit_group();
        k.cp_async_wait_group(1);
        k.mma_m16n8k8_tf32(memory.load_vec4(lane * 4), memory.load_vec2(lane * 2), sums);
        (0u32..).zip(sums).for_each(|(j, sum)| x.store(lane * 4 + j, sum));
    });
    assert_eq!((count(&entry, Opcode::Mma), count(&entry, Opcode::Cp)), (3, 5));
    assert_eq!(count(&entry, Opcode::Prefetch), 1);
    for target in SmTarget::GENERATED.iter().copied().filter(|target| target.number >= 80) {
        let module = ModuleBuilder::new(target).entry(entry.clone()).build();
        let text = module.to_string();
        assert_eq!(parse(&text).as_ref(), Ok(&module));
        assert!(text.contains("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), "{text}");
        assert!(text.contains("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"), "{text}");
        assert!(text.contains("cp.async.cg.shared.global"), "{text}");
        ptxas::must_assemble(&text, &target.to_string());
    }
}

#[test]
fn entries_of_one_module_share_dynamic_memory() {
    let entry = |name| {
        Kernel::build(name, |k| {
            let fixed = k.shared::<f32>("fixed", 4);
            let dynamic = k.dynamic_shared::<f32>();
            let after = k.shared::<f32>("after", 4);
            fixed.store(k.tid_x(), dynamic.load(k.tid_x()) + after.load(1));
        })
    };
    let target = SmTarget::portable(80);
    let module = ModuleBuilder::new(target).entry(entry("one")).entry(entry("two")).build();
    assert_eq!(module.variables.len(), 1);
    let text = module.to_string();
    assert_eq!(parse(&text).as_ref(), Ok(&module));
    assert!(text.contains("[after+4]"), "{text}");
    ptxas::must_assemble(&text, "sm_80");
}

#[test]
fn nothing_contracts_and_constants_fold() {
    let entry = Kernel::build("arithmetic", |k| {
        let x = k.pointer::<f32>("x");
        let i = k.tid_x() * 1 + 0 + (k.constant(3u32) * 4 - 12);
        let v = x.load(i);
        x.store(i, v * v + v + k.constant(2.0f32) * 3.0);
        x.store(1, -k.constant(0.0f32));
        x.reinterpret::<i32>().store(2, -k.constant(5));
    });
    assert_eq!(count(&entry, Opcode::Fma), 0);
    assert_eq!(count(&entry, Opcode::Mul), 1);
    assert_eq!(count(&entry, Opcode::Add), 2);
    let text = check(entry);
    assert!(text.contains("0f40C00000"), "2 * 3 is folded: {text}");
    assert!(text.contains("0f80000000") && text.contains(" -5;"), "{text}");
}

#[test]
#[should_panic(expected = "`x` is declared twice")]
fn a_name_is_declared_once() {
    Kernel::build("twice", |k| {
        k.pointer::<f32>("x");
        k.shared::<f32>("x", 4);
    });
}
