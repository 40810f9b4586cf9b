//! The oracle must be right by itself: known placements, and every erasure of small stripes.

use super::*;

const RAID6: Layout = Layout {
    data: 3,
    parity: 2,
    groups: 1,
    chunk_bytes: 4,
    rows: 7,
};

/// Bytes that do not repeat soon.
fn pattern(length: usize) -> Vec<u8> {
    let mut state: u32 = 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn roles_are_where_md_has_them() {
    // md raid6 left-symmetric of 5: members of D0 D1 D2 P Q, row by row.
    for (stripe, expected) in [
        (0, [1, 2, 3, 4, 0]),
        (1, [0, 1, 2, 3, 4]),
        (2, [4, 0, 1, 2, 3]),
        (3, [3, 4, 0, 1, 2]),
        (4, [2, 3, 4, 0, 1]),
        (5, [1, 2, 3, 4, 0]),
    ] {
        assert_eq!(RAID6.members_by_role(stripe), expected, "stripe {stripe}");
    }
    let raid5 = Layout { parity: 1, ..RAID6 };
    assert_eq!(raid5.members_by_role(0), [0, 1, 2, 3]);
    assert_eq!(raid5.members_by_role(1), [3, 0, 1, 2]);
    let mirrors = Layout {
        data: 1,
        parity: 1,
        groups: 3,
        ..RAID6
    };
    assert_eq!(mirrors.members_by_role(4), [2, 3], "near=2 copies");
}

#[test]
fn any_k_chunks_give_all_chunks_back() {
    for parity in 0..=4 {
        for data in 1..=5 {
            let layout = Layout {
                data,
                parity,
                ..RAID6
            };
            let chunks = layout.encode(
                &pattern(data * 4)
                    .chunks(4)
                    .map(<[u8]>::to_vec)
                    .collect::<Vec<_>>(),
            );
            for lost in 0..1u32 << (data + parity) {
                let left: Vec<Option<Vec<u8>>> = (0..data + parity)
                    .map(|role| (lost >> role & 1 == 0).then(|| chunks[role].clone()))
                    .collect();
                let enough = left.iter().flatten().count() >= data;
                assert_eq!(layout.decode(&left), enough.then(|| chunks.clone()));
            }
        }
    }
}

#[test]
fn p_is_the_sum_and_q_the_weighted_sum() {
    let chunks = RAID6.encode(&[vec![1; 4], vec![2; 4], vec![0x80; 4]]);
    assert_eq!(chunks[3], [0x83; 4]);
    assert_eq!(chunks[4], [1 ^ 4 ^ 0x3a; 4], "1 + 2·2 + 4·0x80");
}

#[test]
fn one_changed_byte_is_one_bad_stripe() {
    let layout = Layout { groups: 2, ..RAID6 };
    let user = pattern(layout.rows * layout.groups * layout.stripe_bytes());
    let good: Vec<Option<Vec<u8>>> = layout.members_of(&user).into_iter().map(Some).collect();
    assert_eq!(layout.check_parity(&good), [0; 0]);
    assert_eq!(layout.user_of(&good), Some(user));
    for member in 0..10 {
        for byte in 0..layout.rows * layout.chunk_bytes {
            let mut changed = good.clone();
            changed[member].as_mut().expect("present")[byte] ^= 0x40;
            let stripe = byte / layout.chunk_bytes * 2 + member / 5;
            assert_eq!(layout.check_parity(&changed), [stripe]);
        }
    }
}

#[test]
fn lost_members_are_left_out_until_they_are_too_many() {
    let user = pattern(RAID6.rows * RAID6.stripe_bytes());
    let mut members: Vec<Option<Vec<u8>>> = RAID6.members_of(&user).into_iter().map(Some).collect();
    members[1] = None;
    members[1 + 3] = None;
    assert_eq!(RAID6.check_parity(&members), [0; 0]);
    assert_eq!(RAID6.user_of(&members), Some(user));
    members[2] = None;
    assert_eq!(RAID6.check_parity(&members).len(), RAID6.rows);
    assert_eq!(RAID6.user_of(&members), None);
}

#[test]
fn chunks_in_pieces_are_judged_as_whole_members_are() {
    let layout = Layout { groups: 2, ..RAID6 };
    let whole = layout.members_of(&pattern(layout.data * 4 * layout.rows * layout.groups));
    let n = layout.data + layout.parity;
    for (changed, lost) in [(0, 1), (3, 3), (6, 9), (9, 2)] {
        for byte in 0..layout.rows * layout.chunk_bytes {
            let mut members: Vec<Option<Vec<u8>>> = whole.iter().cloned().map(Some).collect();
            members[lost] = None;
            if let Some(member) = &mut members[changed] {
                member[byte] ^= 0x20;
            }
            let row = byte / layout.chunk_bytes;
            let bad = vec![row * layout.groups + changed / n];
            let bad = if changed == lost { Vec::new() } else { bad };
            assert_eq!(layout.check_parity(&members), bad);
            for together in [1, 3, 4, 64] {
                let found = layout.check_chunks(together, |stripe, member, bytes| {
                    let start = layout.start(stripe);
                    let piece = start + bytes.start..start + bytes.end;
                    let member = members[member].as_ref();
                    member.map(|member| member[piece].into())
                });
                assert_eq!(found, bad, "{changed}, {lost}, byte {byte} by {together}");
            }
        }
    }
}

#[test]
fn files_are_checked_from_their_data_area_on() {
    let folder = std::env::temp_dir().join(format!("model-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let user = pattern(RAID6.rows * RAID6.stripe_bytes());
    let members = RAID6.members_of(&user);
    let files: Vec<Option<MemberFile>> = (0..5)
        .map(|member| {
            let path = folder.join(member.to_string());
            let head = pattern(100 + member);
            std::fs::write(
                &path,
                [&head, &members[member]].map(|part| &part[..]).concat(),
            )
            .unwrap();
            let data_offset_bytes = 100 + u64::try_from(member).unwrap();
            Some(MemberFile {
                path,
                data_offset_bytes,
            })
        })
        .collect();
    let good = RAID6.check_files(&files).unwrap();
    let second = RAID6.stripe_in_files(&files, 1).unwrap();
    let mut shifted = files.clone();
    shifted[0].as_mut().unwrap().data_offset_bytes -= 1;
    let bad = RAID6.check_files(&shifted).unwrap();
    shifted[0].as_mut().unwrap().data_offset_bytes += 2;
    let short = RAID6.check_files(&shifted);
    std::fs::remove_dir_all(&folder).unwrap();

    assert_eq!(good, [0; 0]);
    assert_eq!(second.as_deref(), Some(&user[12..24]));
    assert_eq!(bad.len(), RAID6.rows);
    assert!(short.is_err(), "a file that ends too early");
}
