import type { ComposePlan, PlannedContainer } from './plan.ts'

// What a new text of a service changes. Values of environment variables and files are not shown.

export interface ContainerChange {
  container: string
  change: 'added' | 'removed' | 'changed'
  /** What is different, such as `image` or `env.GREETING`. */
  fields: string[]
}

export interface PlanDiff {
  containers: ContainerChange[]
  /** Volumes that are no longer used are kept. */
  volumes: { added: string[]; removed: string[] }
}

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)

/** The differences between two plans. */
export function diffOf(before: ComposePlan, after: ComposePlan): PlanDiff {
  const old = new Map(before.containers.map((one) => [one.name, one]))
  const next = new Map(after.containers.map((one) => [one.name, one]))
  const removed = before.containers.filter(({ name }) => !next.has(name))
  const networksChanged = !same(before.networks, after.networks)
  return {
    containers: [
      ...removed.map(({ name }): ContainerChange => ({ container: name, change: 'removed', fields: [] })),
      ...after.containers.flatMap((one): ContainerChange[] => {
        const former = old.get(one.name)
        if (!former) return [{ container: one.name, change: 'added', fields: [] }]
        const fields = [...fieldsThatDiffer(former, one), ...(networksChanged ? ['networks'] : [])]
        return fields.length ? [{ container: one.name, change: 'changed', fields: [...new Set(fields)] }] : []
      }),
    ],
    volumes: {
      added: after.volumes.filter((name) => !before.volumes.includes(name)),
      removed: before.volumes.filter((name) => !after.volumes.includes(name)),
    },
  }
}

function fieldsThatDiffer(before: PlannedContainer, after: PlannedContainer): string[] {
  const all = Object.keys({ ...before, ...after }) as (keyof PlannedContainer)[]
  return all.flatMap((field) => {
    if (same(before[field], after[field])) return []
    // The same tag may have been built again.
    if (field === 'built') return ['image']
    if (field !== 'env') return [field]
    const names = new Set([...Object.keys(before.env), ...Object.keys(after.env)])
    const differ = [...names].filter((name) => before.env[name] !== after.env[name])
    return differ.map((name) => `env.${name}`)
  })
}
