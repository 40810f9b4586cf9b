//! The same bytes as ISA-L, an independent implementation (Debian: libisal-dev).

use std::ffi::{c_int, c_void};

use memory::Segment;
use units::RoleSet;

use super::{Chance, Chunks, backends};
use crate::Code;

// As declared in isa-l/erasure_code.h and isa-l/raid.h of version 2.30.
#[link(name = "isal")]
unsafe extern "C" {
    fn ec_init_tables(k: c_int, rows: c_int, matrix: *mut u8, tables: *mut u8);
    fn ec_encode_data(
        length: c_int,
        k: c_int,
        rows: c_int,
        tables: *mut u8,
        data: *mut *mut u8,
        coding: *mut *mut u8,
    );
    fn xor_gen(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
}

fn int(number: usize) -> c_int {
    c_int::try_from(number).expect("small in tests")
}

fn addresses(segments: &[Segment]) -> Vec<*mut u8> {
    segments.iter().map(|segment| segment.address()).collect()
}

/// `targets = matrix · sources` by ISA-L; the matrix row by row.
fn encode(matrix: &[u8], sources: &[Segment], targets: &[Segment]) {
    let (k, rows) = (sources.len(), targets.len());
    assert_eq!(matrix.len(), k * rows);
    let mut matrix = matrix.to_vec();
    let mut tables = vec![0u8; 32 * k * rows];
    // SAFETY: k · rows bytes of matrix and 32 times that of tables, as the header asks.
    unsafe { ec_init_tables(int(k), int(rows), matrix.as_mut_ptr(), tables.as_mut_ptr()) };
    let (mut data, mut coding) = (addresses(sources), addresses(targets));
    let length = int(targets[0].len());
    // SAFETY: k sources and `rows` targets of `length` bytes, tables as made above.
    unsafe {
        ec_encode_data(
            length,
            int(k),
            int(rows),
            tables.as_mut_ptr(),
            data.as_mut_ptr(),
            coding.as_mut_ptr(),
        );
    }
}

#[test]
fn parity_and_recovery_are_byte_for_byte_those_of_isa_l() {
    let mut chance = Chance::new(20);
    for backend in backends() {
        for round in 0..200 {
            let parity_count = 1 + chance.below(32);
            let data_count = 1 + chance.below(64 - parity_count);
            let code = Code::with_backend(data_count, parity_count, backend).expect("available");
            let length = 1 + chance.below([100, 3000, 10000][round % 3]);
            let mut stripe = Chunks::new(data_count + parity_count, length, 5);
            let mut theirs = Chunks::new(parity_count, length, 3);
            stripe.randomize(&mut chance);
            let (s, t) = (stripe.segments(), theirs.segments());
            let (data, parity) = s.split_at(data_count);
            let matrix: Vec<u8> = (0..parity_count)
                .flat_map(|row| (0..data_count).map(move |column| (row, column)))
                .map(|(row, column)| code.coefficient(row, column))
                .collect();

            code.generate(data, parity);
            encode(&matrix, data, &t);

            for row in 0..parity_count {
                let ours = stripe.get(data_count + row);
                assert_eq!(ours, theirs.get(row), "{code:?} row {row} of {length}");
            }

            let all = RoleSet::range(0, data_count + parity_count);
            let lost = all.lowest(parity_count);
            let decoder = code
                .decoder(all.without(lost), lost)
                .expect("within parity");
            let sources: Vec<Segment> = decoder.sources().iter().map(|r| s[r.at()]).collect();
            let matrix: Vec<u8> = (0..parity_count)
                .flat_map(|target| (0..data_count).map(move |source| (target, source)))
                .map(|(target, source)| decoder.factor(target, source))
                .collect();
            encode(&matrix, &sources, &t);
            for (index, role) in lost.iter().enumerate() {
                assert_eq!(theirs.get(index), stripe.get(role.at()), "{code:?} {role}");
            }
        }
    }
}

/// Memory as ISA-L's RAID functions want it.
#[repr(C, align(64))]
#[derive(Clone)]
struct Aligned([u8; 4096 + 512]);

#[test]
fn p_and_q_are_byte_for_byte_those_of_isa_l() {
    const LENGTH: usize = size_of::<Aligned>();
    let mut chance = Chance::new(21);
    for backend in backends() {
        for data_count in 2..=62 {
            let mut stripe = vec![Aligned([0; LENGTH]); data_count + 4];
            stripe
                .iter_mut()
                .for_each(|chunk| chance.fill(&mut chunk.0));
            let s: Vec<Segment> = stripe
                .iter_mut()
                // SAFETY: `stripe` outlives the segments and is read after their use.
                .map(|chunk| unsafe { Segment::new(chunk.0.as_mut_ptr(), LENGTH) })
                .collect();
            let (data, ours) = (&s[..data_count], &s[data_count + 2..]);
            let mut array: Vec<*mut c_void> = s[..data_count + 2]
                .iter()
                .map(|segment| segment.address().cast())
                .collect();

            // SAFETY: data, P and Q of LENGTH bytes, all aligned to 64.
            let failed = unsafe { pq_gen(int(data_count + 2), int(LENGTH), array.as_mut_ptr()) };
            assert_eq!(failed, 0);
            let code = Code::with_backend(data_count, 2, backend).expect("available");
            code.generate(data, ours);

            assert!(
                stripe[data_count].0 == stripe[data_count + 2].0,
                "P of {code:?}"
            );
            assert!(
                stripe[data_count + 1].0 == stripe[data_count + 3].0,
                "Q of {code:?}"
            );

            // SAFETY: data and P of LENGTH bytes, all aligned to 64.
            let failed = unsafe { xor_gen(int(data_count + 1), int(LENGTH), array.as_mut_ptr()) };
            assert_eq!(failed, 0);
            let code = Code::with_backend(data_count, 1, backend).expect("available");
            ours[0].fill(0);
            code.generate(data, &ours[..1]);
            assert!(
                stripe[data_count].0 == stripe[data_count + 2].0,
                "P of {code:?}"
            );
        }
    }
}
