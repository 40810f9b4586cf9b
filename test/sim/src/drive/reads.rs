//! What reads of a drive find.

use std::borrow::Cow;

use array::MemberRequest;
use units::{bytes_u64, bytes_usize};

use super::SimDrive;

impl SimDrive {
    /// What a read of so many bytes finds now.
    #[must_use]
    pub fn get(&self, offset: u64, length: u64) -> Vec<u8> {
        let length = bytes_usize(length);
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let found = self.found(offset + bytes_u64(bytes.len()));
            bytes.extend_from_slice(&found[..found.len().min(length - bytes.len())]);
        }
        bytes
    }

    /// As `get`, without a copy where the bytes lie together.
    #[must_use]
    pub fn find(&self, offset: u64, length: u64) -> Cow<'_, [u8]> {
        match self.found(offset).get(..bytes_usize(length)) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => Cow::Owned(self.get(offset, length)),
        }
    }

    /// What a read finds from a byte on, as far as it lies together.
    fn found(&self, byte: u64) -> &[u8] {
        if self.refused.is_empty() {
            return self.store.read_from(byte);
        }
        let block = byte / self.block;
        // What is bad is whatever somebody will write there.
        let refused = self.refused.get(&block).map(Vec::as_slice);
        let content = refused.unwrap_or_else(|| self.store.read(block));
        &content[bytes_usize(byte % self.block)..]
    }

    /// Brings what a read asks for.
    pub(super) fn bring(&self, request: &MemberRequest) {
        let mut byte = request.offset;
        for segment in request.segments.as_slice() {
            let mut done = 0;
            while done < segment.len() {
                let found = self.found(byte);
                let bytes = found.len().min(segment.len() - done);
                segment.part(done, bytes).copy_from_slice(&found[..bytes]);
                done += bytes;
                byte += bytes_u64(bytes);
            }
        }
        let end = request.offset + request.length;
        assert_eq!(byte, end, "a read carries what it names");
    }

    /// Of what a read has brought, some blocks are others' content.
    pub(super) fn go_astray(&mut self, request: &MemberRequest) {
        let (first, size) = (request.offset / self.block, bytes_usize(self.block));
        let end = first + request.length / self.block;
        let met: Vec<(u64, u64)> = (self.astray.range(first..end))
            .map(|(block, other)| (*block, *other))
            .collect();
        for (block, other) in met {
            self.astray.remove(&block);
            let content = self.block(other);
            self.went_astray += u64::from(content != self.block(block));
            let mut rest = &content[..];
            let at = bytes_usize(block - first) * size;
            request.segments.for_each_part(at, size, |part| {
                let (head, tail) = rest.split_at(part.len());
                part.copy_from_slice(head);
                rest = tail;
            });
        }
    }

    /// What a read of the block finds now.
    #[must_use]
    pub fn block(&self, block: u64) -> Vec<u8> {
        self.store.read(block).to_vec()
    }
}
