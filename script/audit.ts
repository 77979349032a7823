import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { type AcceptedAdvisory, acceptedAdvisories } from './lib/accepted.ts'

// Asks the package registry which of the packages that Keelson runs with have known vulnerabilities (npm audit), and
// fails at those of high and critical severity. A registry that does not answer fails nothing: not all offer this, and
// a machine may be offline.

export interface Advisory {
  id: string
  package: string
  severity: string
  title: string
}

const grave = ['high', 'critical']
// So much of a registry that drops packets; an answer takes a second.
const registryAnswersMs = 20_000

const Direct = z.object({
  name: z.string(),
  severity: z.string(),
  title: z.string(),
  url: z.string(),
})
const Report = z.object({
  // A package is vulnerable itself, or by the name of another one in the list.
  vulnerabilities: z.record(z.string(), z.object({ via: z.array(z.union([z.string(), Direct])) })),
})
const Fault = z.object({ error: z.object({ code: z.string().min(1), summary: z.string() }) })
const NoAnswer = z.object({ message: z.string() })

/**
 * The advisories for the packages in a folder's lock file, without those that only development needs; null if the
 * registry does not answer.
 */
export async function advisoriesOf(folder: string, registry?: string): Promise<Advisory[] | null> {
  const args = ['audit', '--json', '--omit=dev', '--fetch-retries=0', `--fetch-timeout=${registryAnswersMs}`]
  const said: unknown = JSON.parse(await npm(folder, registry ? [...args, '--registry', registry] : args))
  const report = Report.safeParse(said)
  if (report.success) return distinct(Object.values(report.data.vulnerabilities).flatMap(({ via }) => via))
  const fault = Fault.safeParse(said)
  if (fault.success) throw new Error(`${fault.data.error.code}: ${fault.data.error.summary}`)
  NoAnswer.parse(said)
  return null
}

/** The grave ones that are not accepted, or no longer. `today` is a date, such as `2027-01-31`. */
export function advisoryFaults(found: Advisory[], accepted: AcceptedAdvisory[], today: string): string[] {
  const isAccepted = ({ id }: Advisory): boolean =>
    accepted.some((one) => one.id === id && today <= one.until)
  return found
    .filter((one) => grave.includes(one.severity) && !isAccepted(one))
    .map(({ id, package: name, severity, title }) => `${name}: ${title} (${severity}, ${id})`)
}

function distinct(via: (string | z.output<typeof Direct>)[]): Advisory[] {
  const advisories = via
    .filter((one) => typeof one !== 'string')
    .map(({ name, severity, title, url }): [string, Advisory] => {
      const id = url.slice(url.lastIndexOf('/') + 1)
      return [`${name} ${id}`, { id, package: name, severity, title }]
    })
  return [...new Map(advisories).values()]
}

/** What npm prints, whatever its exit code: it is 1 for a vulnerability and for no answer. */
const npm = (folder: string, args: string[]): Promise<string> =>
  new Promise((resolve, reject) => {
    execFile('npm', args, { cwd: folder, maxBuffer: 64 * 1024 * 1024 }, (error, stdout) =>
      stdout.trim() ? resolve(stdout) : reject(error ?? new Error('npm said nothing')),
    )
  })

if (import.meta.main) {
  const found = await advisoriesOf(fileURLToPath(new URL('..', import.meta.url)))
  if (found) {
    const faults = advisoryFaults(found, acceptedAdvisories, new Date().toISOString().slice(0, 10))
    for (const fault of faults) console.error(fault)
    if (faults.length > 0) process.exitCode = 1
  } else {
    console.log('not audited: the registry does not answer')
  }
}
