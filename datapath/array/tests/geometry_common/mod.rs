//! Every geometry of up to eight members, and its double in the oracle.

use array::{Geometry, GeometryParameters, Level};
use model::Layout;
use units::BlockSize;

/// Members of the largest array in these tests.
const MEMBERS: usize = 8;

/// All geometries of up to eight members with chunks of so many 4 KiB blocks, each with two full
/// turns of its rotation and a row more.
pub(crate) fn geometries(chunk_blocks: u32) -> Vec<Geometry> {
    let mut found = Vec::new();
    for level in Level::ALL {
        for members in 1..=MEMBERS {
            let group_sizes = (1..=members).filter(|_| is_nested(level)).map(Some);
            for group_size in group_sizes.chain([None]) {
                let parities = (0..=members).filter(|_| level == Level::Nm).map(Some);
                for parity in parities.chain([None]) {
                    let group_members = u64::try_from(group_size.unwrap_or(members)).unwrap();
                    let rows = 2 * group_members + 1;
                    found.extend(Geometry::new(GeometryParameters {
                        level,
                        members,
                        parity,
                        group_size,
                        chunk_bytes: u64::from(chunk_blocks) * 4096,
                        block: BlockSize::B4096,
                        member_data_blocks: rows * u64::from(chunk_blocks),
                    }));
                }
            }
        }
    }
    // 0: 2 to 8; 1: 2 to 8; 10: 4, 6, 8; 5: 3 to 8; 6: 4 to 8; 7: 4 to 8; nm: 1 + 2 + … + 7;
    // 50: 2×3, 2×4; 60: 2×4; 70: 2×4.
    assert_eq!(found.len(), 7 + 7 + 3 + 6 + 5 + 5 + 28 + 2 + 1 + 1);
    found
}

fn is_nested(level: Level) -> bool {
    matches!(level, Level::L50 | Level::L60 | Level::L70)
}

/// The same array as the oracle sees it, with one byte per block.
pub(crate) fn layout(geometry: &Geometry) -> Layout {
    Layout {
        data: geometry.data(),
        parity: geometry.parity(),
        groups: geometry.groups(),
        chunk_bytes: usize::try_from(geometry.chunk_blocks()).unwrap(),
        rows: usize::try_from(geometry.rows()).unwrap(),
    }
}
