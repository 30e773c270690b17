// Two CUDA devices that pretend: enough for torch to make, view and index FakeTensorMode's tensors on them, and to run autograd.
// Nothing is computed and no memory is allocated. For a torch built without CUDA, which has neither a guard nor hooks of its own.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
constexpr c10::DeviceIndex COUNT = 2;
thread_local c10::DeviceIndex current = 0;

c10::Stream default_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CUDA, device));
}
}  // namespace

namespace c10::impl {
struct PretendedGuard final : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  Stream getStream(Device device) const noexcept override { return default_stream(device.index()); }
  Stream getDefaultStream(Device device) const override { return default_stream(device.index()); }
  Stream getNewStream(Device device, int) const override { return default_stream(device.index()); }
  Stream exchangeStream(Stream stream) const noexcept override { return default_stream(stream.device_index()); }
  DeviceIndex deviceCount() const noexcept override { return COUNT; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, PretendedGuard)
}  // namespace c10::impl

namespace at {
// The name under which torch looks for them.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex deviceCount() const override { return COUNT; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { current = device; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
