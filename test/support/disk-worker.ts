import { makeQcow2Disks, type Qcow2Settings } from '../../drivers/qcow2/disks.ts'

// A worker that carries out one disk call and may be killed meanwhile. Arguments: settings, method and parameters, as
// JSON.

const [settings, method, args] = process.argv.slice(2).map((text) => JSON.parse(text) as unknown) as [
  Qcow2Settings,
  'create' | 'attach' | 'detach' | 'resize' | 'snapshot' | 'pull' | 'remove',
  unknown[],
]
const disks = makeQcow2Disks(settings)
console.log('begins')
await (disks[method] as (...given: unknown[]) => Promise<unknown>)(...args)
console.log('ends')
