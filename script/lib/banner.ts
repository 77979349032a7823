import { existsSync } from 'node:fs'
import { relative } from 'node:path'
import { machineKinds } from './roles.ts'
import { ownerFile } from './secrets.ts'
import type { Layout } from './settings.ts'
import type { ServerFacts } from './supervisor.ts'

/** The text for a person when the server is up: addresses, how to log in, and commands to paste. */
export function banner(layout: Layout, facts: ServerFacts, password: string | null, seconds: number): string {
  const file = ownerFile(layout)
  const near = relative(process.cwd(), file)
  const shown = near.startsWith('..') ? file : near
  const body = existsSync(file) ? `@${shown}` : `'{"email":"${facts.email}","password":"…"}'`
  const lines = [
    `Keelson is up (${seconds.toFixed(1)} s).`,
    '',
    `  API            ${facts.api_url}/api/v1`,
    `  API reference  ${facts.docs_url}`,
    `  Temporal UI    ${facts.temporal_ui_url}`,
    `  E-mail         ${facts.email}`,
  ]
  if (password !== null)
    lines.push(`  Password       ${password}    (shown this once; kept in ${shown}, for you alone)`)
  if (machineKinds().startsWith('container'))
    lines.push(
      '',
      'Deploy servers get container machines, which are not for tenants who distrust each other:',
      'docs/deploy-servers.md has more. KEELSON_MACHINE_KINDS=vm gives them VMs, where KVM works.',
    )
  lines.push(
    '',
    'Log in and list your containers:',
    '',
    `TOKEN=$(curl -s ${facts.api_url}/api/v1/auth/login -H 'content-type: application/json' -d ${body} | sed 's/.*"token":"\\([^"]*\\)".*/\\1/')`,
    `curl -s ${facts.api_url}/api/v1/containers -H "authorization: Bearer $TOKEN"`,
    '',
    'Ctrl-C, or `script/server stop`, stops the platform; containers go on running.',
    '',
  )
  return lines.join('\n')
}
