//! RAID levels: their names, and how many members and parities each takes.

use std::fmt;
use std::str::FromStr;

use units::limits::{ARRAY_MEMBERS_MAX, GROUP_MEMBERS_MAX, PARITY_MAX};

use super::{GeometryError, GeometryParameters};

/// A RAID level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Data over all members, no redundancy.
    L0,
    /// Every member holds everything.
    L1,
    /// Pairs of mirrors, stripes dealt over the pairs: member 2g and 2g + 1.
    L10,
    /// One parity.
    L5,
    /// Two parities.
    L6,
    /// Three parities ("7.3").
    L7,
    /// As many parities as asked, 1 to 32.
    Nm,
    /// Groups of level 5, stripes dealt over them.
    L50,
    /// Groups of level 6, stripes dealt over them.
    L60,
    /// Groups of level 7, stripes dealt over them.
    L70,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 10] = [
        Level::L0,
        Level::L1,
        Level::L10,
        Level::L5,
        Level::L6,
        Level::L7,
        Level::Nm,
        Level::L50,
        Level::L60,
        Level::L70,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::L0 => "0",
            Level::L1 => "1",
            Level::L10 => "10",
            Level::L5 => "5",
            Level::L6 => "6",
            Level::L7 => "7",
            Level::Nm => "nm",
            Level::L50 => "50",
            Level::L60 => "60",
            Level::L70 => "70",
        }
    }

    /// Parity chunks per stripe of a group of so many members, where the level says it.
    fn parity(self, group_members: usize) -> Option<usize> {
        match self {
            Level::L0 => Some(0),
            Level::L1 => Some(group_members - 1),
            Level::L10 | Level::L5 | Level::L50 => Some(1),
            Level::L6 | Level::L60 => Some(2),
            Level::L7 | Level::L70 => Some(3),
            Level::Nm => None,
        }
    }

    /// The fewest and the most members of one group.
    fn group_members_range(self) -> (usize, usize) {
        match self {
            Level::L0 | Level::Nm => (2, GROUP_MEMBERS_MAX),
            Level::L1 => (2, PARITY_MAX + 1),
            Level::L10 => (2, 2),
            Level::L5 | Level::L50 => (3, GROUP_MEMBERS_MAX),
            Level::L6 | Level::L60 | Level::L7 | Level::L70 => (4, GROUP_MEMBERS_MAX),
        }
    }

    /// The fewest members of the whole array.
    #[must_use]
    pub fn members_min(self) -> usize {
        let group = self.group_members_range().0;
        if self.has_groups() { 2 * group } else { group }
    }

    /// The most members of the whole array.
    #[must_use]
    pub fn members_max(self) -> usize {
        if self.has_groups() {
            ARRAY_MEMBERS_MAX
        } else {
            self.group_members_range().1
        }
    }

    /// Whether stripes are dealt over several groups.
    #[must_use]
    pub fn has_groups(self) -> bool {
        match self {
            Level::L10 | Level::L50 | Level::L60 | Level::L70 => true,
            Level::L0 | Level::L1 | Level::L5 | Level::L6 | Level::L7 | Level::Nm => false,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text is not a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLevelError {
    text: String,
}

impl fmt::Display for ParseLevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        write!(
            f,
            "`{text}` is not a level; levels are 0, 1, 10, 5, 6, 7, nm, 50, 60 and 70"
        )
    }
}

impl std::error::Error for ParseLevelError {}

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(text: &str) -> Result<Level, ParseLevelError> {
        let known = Level::ALL.into_iter().find(|level| level.name() == text);
        known.ok_or_else(|| ParseLevelError {
            text: text.to_owned(),
        })
    }
}

/// Members of one group, checked.
pub(super) fn group_members(parameters: &GeometryParameters) -> Result<usize, GeometryError> {
    let &GeometryParameters { level, members, .. } = parameters;
    if members < level.members_min() {
        let least = level.members_min();
        return Err(GeometryError::TooFewMembers {
            level,
            members,
            least,
        });
    }
    if members > level.members_max() {
        let most = level.members_max();
        return Err(GeometryError::TooManyMembers {
            level,
            members,
            most,
        });
    }
    let implied = match level {
        Level::L10 => Some(2),
        Level::L50 | Level::L60 | Level::L70 => None,
        Level::L0 | Level::L1 | Level::L5 | Level::L6 | Level::L7 | Level::Nm => Some(members),
    };
    let group_size = match (implied, parameters.group_size) {
        (Some(implied), Some(given)) if implied != given => {
            return Err(GeometryError::GroupSizeNotTaken { level, given });
        }
        (Some(implied), _) => implied,
        (None, Some(given)) => given,
        (None, None) => return Err(GeometryError::GroupSizeMissing { level, members }),
    };
    let (least, most) = level.group_members_range();
    if group_size < least || group_size > most {
        return Err(GeometryError::GroupSize {
            level,
            group_size,
            least,
            most,
        });
    }
    if !members.is_multiple_of(group_size) {
        return Err(GeometryError::UnequalGroups {
            level,
            members,
            group_size,
        });
    }
    if level.has_groups() && members == group_size {
        return Err(GeometryError::OneGroup { level, members });
    }
    Ok(group_size)
}

/// Parity chunks per stripe, checked against the members of one group.
pub(super) fn parity(
    parameters: &GeometryParameters,
    group_members: usize,
) -> Result<usize, GeometryError> {
    let level = parameters.level;
    let parity = match (level.parity(group_members), parameters.parity) {
        (Some(implied), Some(given)) if implied != given => {
            return Err(GeometryError::ParityNotTaken {
                level,
                given,
                implied,
            });
        }
        (Some(implied), _) => implied,
        (None, Some(given)) if (1..=PARITY_MAX).contains(&given) => given,
        (None, Some(given)) => return Err(GeometryError::Parity { given }),
        (None, None) => return Err(GeometryError::ParityMissing),
    };
    if parity >= group_members {
        return Err(GeometryError::NoData {
            members: group_members,
            parity,
        });
    }
    Ok(parity)
}
