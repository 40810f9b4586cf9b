//! A volume's bytes on members: placed, encoded, decoded and checked the plain way.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::field::{add_scaled, coefficient, inverse, sums_of_scaled};

/// The numbers of an array. Mirrors are one data chunk and its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// k: data chunks per stripe.
    pub data: usize,
    /// M: parity chunks per stripe.
    pub parity: usize,
    /// Groups that stripes are dealt over.
    pub groups: usize,
    /// Bytes of a chunk; any number, also 1.
    pub chunk_bytes: usize,
    /// Chunks of a member.
    pub rows: usize,
}

/// A member that is a file or a block device.
#[derive(Clone, Debug)]
pub struct MemberFile {
    /// Where it is.
    pub path: PathBuf,
    /// Where its data area begins, in bytes.
    pub data_offset_bytes: u64,
}

impl Layout {
    /// Members of one group.
    #[must_use]
    pub fn group_members(&self) -> usize {
        self.data + self.parity
    }

    /// User bytes of one stripe.
    #[must_use]
    pub fn stripe_bytes(&self) -> usize {
        self.data * self.chunk_bytes
    }

    /// The member that holds each role of a stripe.
    ///
    /// The first row of md's left-symmetric order has P last, the other parities first and the
    /// data between; each row after it is turned left by one.
    #[must_use]
    pub fn members_by_role(&self, stripe: usize) -> Vec<usize> {
        let (row, group) = (stripe / self.groups, stripe % self.groups);
        let (k, n) = (self.data, self.group_members());
        let mut order: Vec<usize> = (0..n).collect();
        if self.data > 1 && self.parity > 0 {
            order = (k + 1..n).chain(0..k).chain([k]).collect();
            order.rotate_left(row % n);
        }
        let place = |role| order.iter().position(|held| *held == role);
        (0..n)
            .map(|role| group * n + place(role).expect("every role has a place"))
            .collect()
    }

    /// All chunks of a stripe, by role, from its data chunks.
    ///
    /// # Panics
    /// When there are not k of them.
    #[must_use]
    pub fn encode(&self, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        assert_eq!(data.len(), self.data);
        let mut chunks = data.to_vec();
        let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        chunks.extend(sums_of_scaled(&self.factors(), &sources));
        chunks
    }

    /// All chunks of a stripe from those there are, by Gauss's elimination; `None` when they are
    /// fewer than k. Only the first k are used, so whether the others agree shows a comparison.
    ///
    /// # Panics
    /// When `chunks` is not one place per role.
    #[must_use]
    pub fn decode(&self, chunks: &[Option<impl AsRef<[u8]>>]) -> Option<Vec<Vec<u8>>> {
        assert_eq!(chunks.len(), self.group_members());
        let k = self.data;
        // One equation per chunk: coefficients of the data chunks, and their sum.
        let mut equations: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (role, chunk) in chunks.iter().enumerate() {
            let unit = |index| u8::from(index == role);
            let factor = |index| {
                if role < k {
                    unit(index)
                } else {
                    coefficient(role - k, index)
                }
            };
            if let (Some(chunk), true) = (chunk, equations.len() < k) {
                let sum = chunk.as_ref().to_vec();
                equations.push(((0..k).map(factor).collect(), sum));
            }
        }
        if equations.len() < k {
            return None;
        }
        for column in 0..k {
            let pivot = (column..k).find(|row| equations[*row].0[column] != 0);
            equations.swap(column, pivot.expect("any k chunks determine the data"));
            let (factors, sum) = equations[column].clone();
            let scale = inverse(factors[column]);
            for (row, equation) in equations.iter_mut().enumerate() {
                // Makes the pivot 1 and everything else in its column 0.
                let factor = if row == column {
                    scale ^ 1
                } else {
                    crate::field::multiply(equation.0[column], scale)
                };
                add_scaled(&mut equation.0, factor, &factors);
                add_scaled(&mut equation.1, factor, &sum);
            }
        }
        let data: Vec<Vec<u8>> = equations.into_iter().map(|(_, sum)| sum).collect();
        Some(self.encode(&data))
    }

    /// The members' data areas when the volume holds `user` bytes.
    ///
    /// # Panics
    /// When `user` is not exactly the size of the array.
    #[must_use]
    pub fn members_of(&self, user: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(user.len(), self.rows * self.groups * self.stripe_bytes());
        let mut members = vec![Vec::new(); self.groups * self.group_members()];
        for (stripe, bytes) in user.chunks(self.stripe_bytes()).enumerate() {
            let data: Vec<Vec<u8>> = bytes.chunks(self.chunk_bytes).map(<[u8]>::to_vec).collect();
            let chunks = self.encode(&data);
            for (member, chunk) in self.members_by_role(stripe).into_iter().zip(chunks) {
                members[member].extend(chunk);
            }
        }
        members
    }

    /// The user bytes that members (`None` is a lost one) hold; `None` when too many are lost.
    #[must_use]
    pub fn user_of(&self, members: &[Option<Vec<u8>>]) -> Option<Vec<u8>> {
        let mut user = Vec::new();
        for stripe in 0..self.rows * self.groups {
            let chunks = self.decode(&self.chunks_of(members, stripe))?;
            user.extend(chunks[..self.data].concat());
        }
        Some(user)
    }

    /// The stripes whose chunks do not agree with each other. A lost member (`None`) is left out;
    /// a stripe that has lost more than M is bad, too.
    #[must_use]
    pub fn check_parity(&self, members: &[Option<Vec<u8>>]) -> Vec<usize> {
        (0..self.rows * self.groups)
            .filter(|stripe| !self.agree(&self.chunks_of(members, *stripe)))
            .collect()
    }

    /// [`Layout::check_parity`] of members whose chunks lie anywhere, in pieces of `together` bytes
    /// at most: `piece` finds that of a stripe on a member from a byte of its chunk on, if it is
    /// not lost.
    #[must_use]
    pub fn check_chunks<'a>(
        &self,
        together: usize,
        piece: impl Fn(usize, usize, Range<usize>) -> Option<Cow<'a, [u8]>>,
    ) -> Vec<usize> {
        // Rows turn round and round, and groups are alike.
        let n = self.group_members();
        let turns: Vec<Vec<usize>> = (0..n)
            .map(|row| self.members_by_role(row * self.groups))
            .collect();
        let factors = self.factors();
        let agree = |stripe: &usize| {
            let (row, group) = (stripe / self.groups, stripe % self.groups);
            let members = turns[row % n].iter().map(|place| group * n + place);
            // Parity is of bytes at the same place: chunks agree when their pieces do.
            (0..self.chunk_bytes).step_by(together).all(|start| {
                let bytes = start..self.chunk_bytes.min(start + together);
                let pieces = members.clone();
                let pieces: Vec<_> = pieces
                    .map(|member| piece(*stripe, member, bytes.clone()))
                    .collect();
                self.agree_by(&factors, &pieces)
            })
        };
        let stripes = 0..self.rows * self.groups;
        stripes.filter(|stripe| !agree(stripe)).collect()
    }

    /// Where the chunks of a stripe begin on its members.
    #[must_use]
    pub fn start(&self, stripe: usize) -> usize {
        stripe / self.groups * self.chunk_bytes
    }

    /// [`Layout::check_parity`] of members that are files; reads one stripe at a time.
    ///
    /// # Errors
    /// When a file cannot be opened or is too short.
    pub fn check_files(&self, members: &[Option<MemberFile>]) -> io::Result<Vec<usize>> {
        let files = self.open(members)?;
        let mut bad = Vec::new();
        for stripe in 0..self.rows * self.groups {
            if !self.agree(&self.chunks_in(&files, stripe)?) {
                bad.push(stripe);
            }
        }
        Ok(bad)
    }

    /// The user bytes of one stripe from members that are files; `None` when too many are lost.
    ///
    /// # Errors
    /// When a file cannot be opened or is too short.
    pub fn stripe_in_files(
        &self,
        members: &[Option<MemberFile>],
        stripe: usize,
    ) -> io::Result<Option<Vec<u8>>> {
        let chunks = self.chunks_in(&self.open(members)?, stripe)?;
        let all = self.decode(&chunks);
        Ok(all.map(|chunks| chunks[..self.data].concat()))
    }

    /// By parity chunk: what each data chunk is multiplied with.
    fn factors(&self) -> Vec<Vec<u8>> {
        let row = |parity| (0..self.data).map(move |data| coefficient(parity, data));
        (0..self.parity)
            .map(|parity| row(parity).collect())
            .collect()
    }

    /// Whether a stripe's chunks are what its first k of them make.
    fn agree(&self, chunks: &[Option<impl AsRef<[u8]>>]) -> bool {
        self.agree_by(&self.factors(), chunks)
    }

    fn agree_by(&self, factors: &[Vec<u8>], chunks: &[Option<impl AsRef<[u8]>>]) -> bool {
        let chunks = chunks.iter().map(Option::as_ref);
        let chunks: Vec<Option<&[u8]>> = chunks.map(|chunk| chunk.map(AsRef::as_ref)).collect();
        let (data, parity) = chunks.split_at(self.data);
        let there: Vec<&[u8]> = data.iter().copied().flatten().collect();
        if there.len() == data.len() {
            let expected = sums_of_scaled(factors, &there);
            let mut pairs = parity.iter().zip(&expected);
            return pairs.all(|(chunk, expected)| chunk.is_none_or(|chunk| chunk == expected));
        }
        let Some(expected) = self.decode(&chunks) else {
            return false;
        };
        let mut pairs = chunks.iter().zip(&expected);
        pairs.all(|(chunk, expected)| chunk.is_none_or(|chunk| chunk == expected))
    }

    fn chunks_of<'a>(
        &self,
        members: &'a [Option<Vec<u8>>],
        stripe: usize,
    ) -> Vec<Option<&'a [u8]>> {
        assert_eq!(members.len(), self.groups * self.group_members());
        let start = self.start(stripe);
        let chunk = |bytes: &'a Vec<u8>| &bytes[start..start + self.chunk_bytes];
        self.members_by_role(stripe)
            .into_iter()
            .map(|member| members[member].as_ref().map(chunk))
            .collect()
    }

    fn open(&self, members: &[Option<MemberFile>]) -> io::Result<Vec<Option<(File, u64)>>> {
        assert_eq!(members.len(), self.groups * self.group_members());
        members
            .iter()
            .map(|member| match member {
                Some(member) => Ok(Some((File::open(&member.path)?, member.data_offset_bytes))),
                None => Ok(None),
            })
            .collect()
    }

    fn chunks_in(
        &self,
        files: &[Option<(File, u64)>],
        stripe: usize,
    ) -> io::Result<Vec<Option<Vec<u8>>>> {
        let start = self.start(stripe);
        let start = u64::try_from(start).expect("a usize fits u64 on 64-bit machines");
        let read = |(file, offset): &(File, u64)| {
            let mut chunk = vec![0; self.chunk_bytes];
            file.read_exact_at(&mut chunk, offset + start)?;
            Ok(chunk)
        };
        self.members_by_role(stripe)
            .into_iter()
            .map(|member| files[member].as_ref().map(read).transpose())
            .collect()
    }
}

#[cfg(test)]
mod tests;
