//! The messages of vhost-user, as crate `vhost` hands them over, given to the [`Connection`].
//!
//! Only what is advertised is followed. An error ends the connection: `vhost` answers it first
//! where the front-end asked for an answer.

use std::fs::File;

use vhost::vhost_user::message::{
    FrontendReq, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use crate::connection::{Connection, Refused, RingAddresses};
use crate::guest_memory::{NewRegion, REGIONS_MAX, RegionPlace};
use crate::inflight::InflightShape;
use crate::profile::FRONT_END_QUEUES_MAX;

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::InvalidOperation(refused.0)
    }
}

/// The protocol features that are offered. No STATUS, no LOG, no SHMEM: `vhost` ends a
/// connection on a message that it does not know, so nothing is offered that is not followed.
fn offered() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::BACKEND_REQ
}

/// Whether a message may begin or end a ring, or take or give memory or what was under way.
pub(crate) fn touches_rings(request: u32) -> bool {
    let others = [
        FrontendReq::GET_FEATURES,
        FrontendReq::SET_FEATURES,
        FrontendReq::SET_OWNER,
        FrontendReq::GET_PROTOCOL_FEATURES,
        FrontendReq::SET_PROTOCOL_FEATURES,
        FrontendReq::GET_QUEUE_NUM,
        FrontendReq::SET_BACKEND_REQ_FD,
        FrontendReq::GET_CONFIG,
        FrontendReq::GET_MAX_MEM_SLOTS,
        // QEMU says these before it asks for the configuration.
        FrontendReq::SET_VRING_CALL,
        FrontendReq::SET_VRING_ERR,
    ];
    !others.map(u32::from).contains(&request)
}

const NOT_OFFERED: Error = Error::InvalidOperation("a message that was not offered");

fn place(region: &VhostUserMemoryRegion) -> RegionPlace {
    RegionPlace {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        bytes: region.memory_size,
    }
}

fn new_region(region: &VhostUserMemoryRegion, file: File) -> NewRegion {
    NewRegion {
        place: place(region),
        offset: region.mmap_offset,
        file,
    }
}

impl VhostUserBackendReqHandlerMut for Connection {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// Deprecated by the protocol, which lets a back-end ignore it.
    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.shown.profile.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        Ok(Connection::set_features(self, features)?)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let mut all = self.new_memory();
        for (region, file) in regions.iter().zip(files) {
            all = all.with(new_region(region, file))?;
        }
        self.set_memory(all);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        Ok(self.set_size(index, num)?)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let addresses = RingAddresses {
            descriptors: descriptor,
            driver: available,
            device: used,
        };
        Ok(self.set_addresses(index, addresses)?)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        Ok(self.set_base(index, base)?)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.base(index)?;
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        Ok(self.set_kick(u32::from(index), fd)?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        Ok(self.set_call(u32::from(index), fd)?)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        Ok(self.set_error(u32::from(index), fd)?)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(offered())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        if features & !offered().bits() != 0 {
            return Err(Refused("protocol features were chosen that were not offered").into());
        }
        self.note_protocol_features(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(
            self.shown.profile.queues.min(FRONT_END_QUEUES_MAX),
        ))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        Ok(self.set_enabled(index, enable)?)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        Ok(self.read_configuration(offset, size)?)
    }

    fn set_config(&mut self, offset: u32, buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        self.write_configuration(offset, buf);
        Ok(())
    }

    /// `vhost` keeps the channel; ours is the duplicate that was seen before.
    fn set_backend_req_fd(&mut self, _backend: Backend) {
        self.take_channel();
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (shape, file) = self.make_inflight(inflight.num_queues, inflight.queue_size)?;
        let answer = VhostUserInflight::new(shape.bytes, shape.offset, shape.queues, shape.size);
        Ok((answer, file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let shape = InflightShape {
            layout: self.layout(),
            queues: inflight.num_queues,
            size: inflight.queue_size,
            bytes: inflight.mmap_size,
            offset: inflight.mmap_offset,
        };
        Ok(self.set_inflight(shape, &file)?)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(units::bytes_u64(REGIONS_MAX))
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.add_region(new_region(region, fd))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Ok(self.remove_region(place(region))?)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}
