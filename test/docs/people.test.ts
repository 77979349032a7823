import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Secret, TOTP } from 'otpauth'
import { newId } from '../../lib/ids.ts'
import { createTenant } from '../../models/identity/tenants.ts'
import { mailedToken } from '../support/mailbox.ts'
import { ask } from '../support/client.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell, refusalsIn } from '../support/paste.ts'
import { facts } from '../support/stack.ts'

// The examples of docs/users-and-roles.md and docs/identity.md, pasted into a shell as an owner would. What the pages cannot know
// is put into them: addresses, the tokens of mails, and the codes of the authenticator.

const owner = { email: `${newId()}@example.com`, password: newId() }
const ada = `${newId()}@example.com`
const chosen = 'correct horse battery'
let home: string
let shell: ReturnType<typeof openShell>
beforeAll(async () => {
  await createTenant({ name: 'people' }, { ...owner, name: 'Owner' })
  home = await mkdtemp(join(tmpdir(), 'reader-'))
  shell = openShell({ API: facts().api_url, TOKEN: await logIn(owner) })
  await shell.paste(`cd '${home}'`)
})
afterAll(async () => {
  await shell?.close()
  await rm(home, { recursive: true })
})

const logIn = async (body: object): Promise<string> =>
  String((await ask('POST', '/api/v1/auth/login', { body })).body['token'])

test('docs/identity.md: a client, its token, and what it may do', async () => {
  const [client = '', token = '', rotation = '', ...rest] = blocksOf(await pageOf('identity')).map((block) =>
    block.replaceAll('http://127.0.0.1:7080', facts().api_url),
  )
  expect(rest).toEqual([])
  expect(await shell.paste(client)).toMatch(/"client_secret":"kcs_/)
  expect(JSON.parse(await shell.paste(token))).toMatchObject({ items: [], total: 0 })
  // For operators: an owner is told so.
  expect(refusalsIn(await shell.paste(rotation))).toEqual(['permission_denied'])
})

test('docs/users-and-roles.md: roles, an invitation, passwords and an authenticator', async () => {
  const [helpers = '', roles = '', invite = '', accept = '', change = '', passwords = '', ...more] = blocksOf(
    await pageOf('users-and-roles'),
  ).map((block) => block.replaceAll('ada@example.com', ada))
  const [authenticator = '', logins = '', ...rest] = more
  expect(rest).toEqual([])
  await shell.paste(helpers)
  const said = await shell.paste(roles)
  expect(refusalsIn(said)).toEqual([])
  expect(said).toContain('"description":"Starts and stops containers"')

  expect(refusalsIn(await shell.paste(invite))).toEqual([])
  expect(await shell.paste(accept.replace('kli_…', await mailedToken(ada)))).toBe('')
  expect(await logIn({ email: ada, password: chosen })).toMatch(/^kls_/)
  expect(refusalsIn(await shell.paste(change))).toEqual([])
  expect((await ask('POST', '/api/v1/auth/login', { body: { email: ada, password: chosen } })).status).toBe(
    401,
  )

  const [own = '', forgotten = '', reset = ''] = passwords.replaceAll(ada, owner.email).trim().split('\n')
  const between = newId()
  expect(
    await shell.paste(
      own.replace('"current_password":"…"', `"current_password":"${owner.password}"`).replace('…', between),
    ),
  ).toBe('')
  expect(await shell.paste(forgotten)).toBe('')
  const token = await mailedToken(owner.email)
  expect(await shell.paste(reset.replace('klp_…', token).replace('…', chosen))).toBe('')

  await shell.paste(`TOKEN=${await logIn({ email: owner.email, password: chosen })}`)
  const [enrol = '', picture = '', confirm = ''] = authenticator.trim().split('\n')
  await shell.paste(`${enrol}\n${picture}`)
  expect(await readFile(join(home, 'qr.svg'), 'utf8')).toMatch(/^<svg[^]*<\/svg>/)
  const { secret } = JSON.parse(await readFile(join(home, 'enrolled.json'), 'utf8')) as { secret: string }
  const otp = new TOTP({ secret: Secret.fromBase32(secret) }).generate()
  const confirmed = await shell.paste(confirm.replace('123456', otp))
  const [code = ''] = (JSON.parse(confirmed) as { recovery_codes: string[] }).recovery_codes

  // A code of the app works once, so the next login takes a recovery code.
  const as = logins.replaceAll(ada, owner.email).replace('123456', code)
  const [first = '', others = ''] = as.split(/(?<="remember":true\}'\n)/)
  const remembered = JSON.parse(await shell.paste(first)) as { remember_token: string }
  const answers = await shell.paste(others.replace('klb_…', remembered.remember_token))
  expect(refusalsIn(answers)).toEqual([])
  expect(answers).toContain('"token":"kls_')
  expect(await logIn({ email: owner.email, password: chosen })).toMatch(/^kls_/)
})
