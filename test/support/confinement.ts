import { readFile } from 'node:fs/promises'

/** The numbers of the capabilities in a mask of /proc/PID/status. */
const capabilitiesIn = (mask: string): number[] =>
  Array.from({ length: 64 }, (_, bit) => bit).filter((bit) => (BigInt(`0x${mask}`) >> BigInt(bit)) & 1n)

// linux/capability.h
export const [dacOverride, sysAdmin] = [1, 21]

/** What the kernel lets a process do: `mostPids` of its control group. */
export async function confinementOf(pid: number | null) {
  const text = await readFile(`/proc/${pid}/status`, 'utf8')
  const field = (name: string): string => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(text)?.[1] ?? ''
  const group = /^\d+:pids:(.*)$/m.exec(await readFile(`/proc/${pid}/cgroup`, 'utf8'))?.[1]
  const file = group === undefined ? null : `/sys/fs/cgroup/pids${group}/pids.max`
  return {
    user: Number(field('Uid')),
    capabilities: capabilitiesIn(field('CapEff')),
    most_capabilities: capabilitiesIn(field('CapBnd')),
    no_new_privileges: field('NoNewPrivs') === '1',
    filtered: field('Seccomp') === '2',
    most_pids: file && (await readFile(file, 'utf8').catch(() => 'max')).trim(),
  }
}
