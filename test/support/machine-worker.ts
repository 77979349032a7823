import type { QemuSettings } from '../../drivers/qemu/host.ts'
import { openQemuMachines } from '../../drivers/qemu/engine.ts'

// A worker that carries out one machine call and may be killed meanwhile. Arguments: settings, method and parameters,
// as JSON.

const [settings, method, args] = process.argv.slice(2).map((text) => JSON.parse(text) as unknown) as [
  QemuSettings,
  'prepare' | 'run' | 'stop' | 'suspend' | 'resume' | 'fork' | 'remove',
  unknown[],
]
const machines = await openQemuMachines(settings)
console.log('begins')
await (machines[method] as (...given: unknown[]) => Promise<unknown>)(...args)
await machines.close()
