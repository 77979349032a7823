import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MailRecord } from '../../models/identity/mails.ts'
import { eventually } from './eventually.ts'
import { layout } from './stack.ts'

/** The mails to this address, oldest first: without an SMTP server they are files in the state folder. */
export async function mailsTo(to: string): Promise<{ subject: string; text: string }[]> {
  await eventually(async () => !(await MailRecord.exists({ to, state: 'waiting' })))
  const sent = await MailRecord.find({ to, state: 'sent' }, { _id: 1 }).sort({ _id: 1 }).lean()
  return sent.map(({ _id }) => {
    const [head = '', ...text] = readFileSync(join(layout.state, 'mails', `${_id}.txt`), 'utf8').split('\n\n')
    return { subject: /^Subject: (.*)$/m.exec(head)?.[1] ?? '', text: text.join('\n\n') }
  })
}

/** The one-time token of the latest mail to this address. */
export async function mailedToken(to: string): Promise<string> {
  const text = (await mailsTo(to)).at(-1)?.text ?? ''
  const [token] = /kl[ip]_[\w-]{43}/.exec(text) ?? []
  if (!token) throw new Error(`no token in the last mail to ${to}: ${text}`)
  return token
}
