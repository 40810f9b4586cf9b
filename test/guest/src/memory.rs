//! The guest's memory: one region of a memory file (or of the heap), at a guest address.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use memory::Segment;
use units::{bytes_u64, bytes_usize};

/// Memory of a guest. Bytes are given out and never taken back; a test makes it large enough.
#[derive(Debug)]
pub struct Memory {
    backing: Backing,
    segment: Segment,
    next: AtomicU64,
}

#[derive(Debug)]
enum Backing {
    /// A file that can be handed to a vhost-user back-end.
    File(File),
    /// For tools that cannot map files.
    Heap(#[allow(dead_code, reason = "keeps what the segment points to")] Vec<u128>),
}

impl Memory {
    /// Guest address of the first byte. Not 0, so that a forgotten address is not memory.
    pub const START: u64 = 1 << 30;

    /// Memory in a file without a name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        // SAFETY: the name is a C string; nothing else is passed.
        let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made the descriptor, and nobody else has it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes_u64(bytes))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (null, fd) = (ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; touches no other memory.
        let address = unsafe { libc::mmap(null, bytes, protection, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mapped until `self` is dropped, which is how long `segment` hands it out; it is
        // never touched as a Rust reference.
        let segment = unsafe { Segment::new(address.cast(), bytes) };
        Ok(Memory {
            backing: Backing::File(file),
            segment,
            next: AtomicU64::new(Memory::START),
        })
    }

    /// Memory on the heap, for Miri.
    #[must_use]
    pub fn heap(bytes: usize) -> Memory {
        let mut cells = vec![0u128; bytes.div_ceil(16)];
        // SAFETY: the vector is kept beside the segment, and only touched through it.
        let segment = unsafe { Segment::new(cells.as_mut_ptr().cast(), bytes) };
        Memory {
            backing: Backing::Heap(cells),
            segment,
            next: AtomicU64::new(Memory::START),
        }
    }

    /// The file behind the memory, from offset 0 on.
    ///
    /// # Panics
    /// When the memory is on the heap.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.backing {
            Backing::File(file) => file,
            Backing::Heap(_) => panic!("memory on the heap has no file"),
        }
    }

    /// All of it, where this process sees it. Mapped as long as `self` lives.
    #[must_use]
    pub fn segment(&self) -> Segment {
        self.segment
    }

    /// `bytes` bytes that nobody else got, as a guest address that is a multiple of `align`.
    ///
    /// # Panics
    /// When the guest is out of memory.
    pub fn allocate(&self, bytes: usize, align: u64) -> u64 {
        let take = |next: u64| next.next_multiple_of(align);
        let after = |next: u64| Some(take(next) + bytes_u64(bytes));
        let next = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let address = take(next.expect("the closure always answers"));
        assert!(
            self.find(address, bytes_u64(bytes)).is_some(),
            "the guest is out of memory"
        );
        address
    }

    /// As of a guest that begins anew: all that was given out is zeroes, and is given out again.
    pub fn reset(&self) {
        let next = self.next.swap(Memory::START, Ordering::Relaxed);
        self.segment
            .part(0, bytes_usize(next - Memory::START))
            .fill(0);
    }

    /// Where `length` bytes at a guest address are, if they are all in memory.
    #[must_use]
    pub fn find(&self, address: u64, length: u64) -> Option<Segment> {
        let offset = address.checked_sub(Memory::START)?;
        let end = offset.checked_add(length)?;
        (end <= bytes_u64(self.segment.len()))
            .then(|| self.segment.part(bytes_usize(offset), bytes_usize(length)))
    }

    /// Writes bytes, as the guest.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.must_find(address, bytes.len()).copy_from_slice(bytes);
    }

    /// Reads bytes, as the guest.
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.must_find(address, length).copy_to_slice(&mut bytes);
        bytes
    }

    /// Loads a byte.
    #[must_use]
    pub fn load_u8(&self, address: u64) -> u8 {
        self.cell::<AtomicU8>(address).load(Ordering::Relaxed)
    }

    /// Stores a byte.
    pub fn store_u8(&self, address: u64, value: u8) {
        self.cell::<AtomicU8>(address)
            .store(value, Ordering::Relaxed);
    }

    /// Loads a half-word; everything the device stored before it is seen after it.
    #[must_use]
    pub fn load_u16(&self, address: u64) -> u16 {
        u16::from_le(self.cell::<AtomicU16>(address).load(Ordering::Acquire))
    }

    /// Stores a half-word; the device sees it after everything stored before.
    pub fn store_u16(&self, address: u64, value: u16) {
        self.cell::<AtomicU16>(address)
            .store(value.to_le(), Ordering::Release);
    }

    /// Loads a word.
    #[must_use]
    pub fn load_u32(&self, address: u64) -> u32 {
        u32::from_le(self.cell::<AtomicU32>(address).load(Ordering::Relaxed))
    }

    /// Stores a word.
    pub fn store_u32(&self, address: u64, value: u32) {
        self.cell::<AtomicU32>(address)
            .store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores a long word.
    pub fn store_u64(&self, address: u64, value: u64) {
        self.cell::<AtomicU64>(address)
            .store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores a long word; the device sees it after everything stored before.
    pub(crate) fn release_u64(&self, address: u64, value: u64) {
        self.cell::<AtomicU64>(address)
            .store(value.to_le(), Ordering::Release);
    }

    fn must_find(&self, address: u64, length: usize) -> Segment {
        self.find(address, bytes_u64(length))
            .unwrap_or_else(|| panic!("{length} bytes at {address:#x} are not guest memory"))
    }

    fn cell<A>(&self, address: u64) -> &A {
        let segment = self.must_find(address, size_of::<A>());
        let cell = segment.address().cast::<A>();
        assert!(cell.is_aligned(), "word at {address:#x} is aligned");
        // SAFETY: mapped as long as `self` lives (constructor), inside and aligned (checked), and
        // shared only as atomics: `A` is one, as this is private and called with nothing else.
        unsafe { &*cell }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Backing::File(_) = self.backing {
            let address = self.segment.address().cast();
            // SAFETY: mapped by the constructor with this length; nobody uses it after `self`.
            let result = unsafe { libc::munmap(address, self.segment.len()) };
            assert_eq!(result, 0, "a mapping can be removed");
        }
    }
}
